"""The order in which waiting requests are admitted."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.plugins import load_plugins
from llmfw.core.policy import SchedulePolicy

NAMES = ("fcfs", "lpm", "priority")


@dataclass(frozen=True)
class Asked:
    """A waiting request."""

    id: str
    arrival: int
    priority: int = 0
    num_tokens: int = 4
    token_ids: np.ndarray = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "token_ids", np.arange(self.num_tokens, dtype=np.int32))


class Cached:
    """A prefix cache that holds the first tokens of a request with so many."""

    def match_length(self, token_ids) -> int:
        return len(token_ids) // 2


def policy(name: str) -> SchedulePolicy:
    entry = load_plugins().registry.find("policy", name)
    return entry.load()(entry.build_options({}))


def order(name: str, *waiting: Asked) -> str:
    return "".join(request.id for request in policy(name).order(waiting, Cached()))


asked = st.builds(
    Asked,
    id=st.just("r"),
    arrival=st.integers(0, 9),
    priority=st.integers(-1, 1),
    num_tokens=st.integers(1, 8),
)


@pytest.mark.parametrize("name", NAMES)
@given(waiting=st.lists(asked, unique_by=lambda request: request.arrival))
def test_every_request_comes_out_once_and_the_same_input_gives_the_same_order(name, waiting):
    given_order = list(waiting)
    ordered = list(policy(name).order(waiting, Cached()))
    assert sorted(map(id, ordered)) == sorted(map(id, waiting))
    assert waiting == given_order
    assert list(policy(name).order(list(reversed(waiting)), Cached())) == ordered


def test_fcfs_admits_by_arrival():
    assert order("fcfs", Asked("b", 2, priority=9), Asked("a", 1), Asked("c", 3, num_tokens=8)) == "abc"


def test_lpm_admits_the_longest_cached_prefix_first():
    assert order("lpm", Asked("c", 1, num_tokens=2), Asked("a", 3, num_tokens=8), Asked("b", 2)) == "abc"


def test_lpm_admits_equal_prefixes_by_arrival():
    assert order("lpm", Asked("b", 2), Asked("a", 1), Asked("c", 3)) == "abc"


def test_priority_admits_larger_priorities_first_then_by_arrival():
    waiting = (Asked("d", 1, -1), Asked("c", 4), Asked("b", 2), Asked("a", 3, 7))
    assert order("priority", *waiting) == "abcd"
