"""The promises of every policy, and those of this one."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llmfw_deadline.policy import Deadline

from llmfw.core import ConfigError, load_plugins
from llmfw.core.testing import SchedulePolicyTests
from llmfw.core.testing.policy_views import make_figures, make_waiting


def order_of(num, options=None, **columns):
    """Return the order of so many requests."""
    policy = Deadline(options or Deadline.Options())
    return policy.order(make_waiting(num, **columns), make_figures()).places.tolist()


class TestDeadline(SchedulePolicyTests):
    @pytest.fixture(params=[{}, {"patience_s": 0.5, "prompt_tokens_per_s": 1000.0}], ids=["plain", "all set"])
    def policy(self, request):
        return Deadline(Deadline.Options(**request.param))


def test_the_nearest_deadline_is_first():
    assert order_of(4, time_left=[9.0, 3.0, 30.0, 3.0]) == [1, 3, 0, 2]


jobs = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), min_size=1, max_size=6)


@given(jobs)
def test_the_order_minimizes_the_largest_lateness(jobs):
    seconds, deadlines = zip(*jobs, strict=True)

    def worst(order):
        ends = np.cumsum([seconds[place] for place in order])
        return max(end - deadlines[place] for end, place in zip(ends, order, strict=True))

    ours = order_of(len(jobs), time_left=[float(deadline) for deadline in deadlines])
    assert worst(ours) == min(map(worst, permutations(range(len(jobs)))))


def test_waiting_requests_without_deadline_overtake_newer_ones():
    """Once a request has waited longer than `patience_s`."""
    options = Deadline.Options(patience_s=20)
    later = {"time_left": [np.inf, 10.0], "num_tokens": [5, 5]}
    assert order_of(2, options, waited=[9.0, 0.0], **later) == [1, 0]
    assert order_of(2, options, waited=[11.0, 0.0], **later) == [0, 1]


def test_hopeless_deadlines_are_ordered_last():
    columns = {"time_left": [1.0, 5.0, np.inf], "num_tokens": [2000, 2000, 2000]}
    assert order_of(3, Deadline.Options(prompt_tokens_per_s=1000), **columns) == [1, 2, 0]
    cached = order_of(3, Deadline.Options(prompt_tokens_per_s=1000), num_cached=[1500, 0, 0], **columns)
    assert cached == [0, 1, 2]


def test_it_is_installed_and_validates_options():
    entry = load_plugins().registry.find("policy", "deadline")
    options = entry.build_options({"policy.patience_s": "5"})
    assert entry.load()(options).options == Deadline.Options(patience_s=5)
    with pytest.raises(ConfigError, match="patience_s"):
        entry.build_options({"policy.patience_s": "0"})
