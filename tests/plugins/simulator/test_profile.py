"""Step times: the formula, the named profiles, and what is fitted to measured steps."""

from __future__ import annotations

import numpy as np
import pytest

from llmfw.plugins.simulator.errors import SimulatorError
from llmfw.plugins.simulator.fit import Step, fit_profile, nnls
from llmfw.plugins.simulator.profile import Profile, load_profile, save_profile
from llmfw.plugins.simulator.profiles import NAMED, named_profile

TRUE = Profile(
    name="true",
    host=2e-3,
    points=[(1, 0.0), (8, 1e-3), (512, 0.1)],
    per_sequence=1e-4,
    per_context=1e-6,
    per_pair=1e-7,
)


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_a_step_costs_the_sum_of_terms():
    seconds = TRUE.step_seconds(ints(10, 100), ints(1, 7))  # one decodes, seven tokens of another's prompt
    pairs = sum(range(101, 108))
    assert seconds == pytest.approx(2e-3 + 1e-3 + 2e-4 + (11 + 107) * 1e-6 + pairs * 1e-7)


def test_costs_are_extrapolated_linearly():
    longer = TRUE.step_seconds(ints(0), ints(1016)) - TRUE.step_seconds(ints(0), ints(512))
    linear = 504 * (0.099 / 504) + 504e-6
    assert longer == pytest.approx(linear + 1e-7 * (1016 * 1017 - 512 * 513) / 2)


def test_a_single_request_takes_its_steps():
    starts = [0, 64, 128]
    steps = [TRUE.step_seconds(ints(start), ints(min(64, 150 - start))) for start in starts]
    steps += [TRUE.step_seconds(ints(start), ints(1)) for start in range(150, 153)]
    assert TRUE.alone_seconds(150, 4, 64) == pytest.approx(sum(steps), rel=1e-3)


def test_8b_h200_decodes_at_memory_speed():
    profile = named_profile("8b-h200")
    limit = 15.01e9 / 4.3e12 + 305 * 131072 / 4.3e12  # of one sequence, see the module
    assert limit < profile.step_seconds(ints(304), ints(1)) < limit / 0.75
    assert 30_000 < 8192 / profile.step_seconds(ints(0), ints(8192)) < 48_900  # the limit of such a prompt


@pytest.mark.parametrize("name", NAMED)
def test_named_profiles_cost_more_for_larger_steps(name):
    profile = named_profile(name)
    times = [profile.step_seconds(ints(0), ints(count)) for count in (1, 100, 1000, 8000)]
    assert times == sorted(times)
    assert profile.step_seconds(ints(5000), ints(1)) > times[0]


def test_a_profile_survives_its_file(tmp_path):
    save_profile(TRUE, tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json") == TRUE


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "p.json"),
        ('{"name": "x", "host": -1, "points": []}', r"\$\.host"),
        ('{"name": "x", "host": 1e308, "points": [[1, 0], [2, 0]]}', r"\$\.host"),
        ('{"name": "x", "host": 1, "points": [[-5, 1], [2, 0]]}', r"\$\.points"),
        ('{"name": "x", "host": 1, "points": [[2, 0], [1, 0]]}', "ascending"),
        ('{"name": "x", "host": 1, "points": [[1, 0], [2, 0]], "hots": 1}', "hots"),
    ],
)
def test_an_invalid_profile_is_refused(tmp_path, text, told):
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(SimulatorError, match=told):
        load_profile(tmp_path / "p.json")


def test_an_unknown_profile_lists_the_known_ones():
    with pytest.raises(SimulatorError, match=r"'9b'.*known: 8b-h200"):
        named_profile("9b")


def measured_steps(rng: np.random.Generator) -> list[Step]:
    """Return steps of random shapes, with what TRUE says they take; a few were disturbed."""
    steps = []
    for _ in range(400):
        decoding, prompts = int(rng.integers(0, 33)), int(rng.integers(0, 4))
        counts = np.array([1] * decoding + rng.integers(2, 150, prompts).tolist() or [1])
        starts = rng.integers(0, 2000, len(counts))
        pairs = float((counts * (starts + (counts + 1) / 2))[counts > 1].sum())
        seconds = TRUE.step_seconds(starts, counts) * rng.normal(1, 0.01) * (3 if rng.random() < 0.03 else 1)
        steps.append(Step(int(counts.sum()), len(counts), float((starts + counts).sum()), pairs, seconds))
    return steps


def test_a_fitted_profile_predicts_unseen_steps():
    fitted, error = fit_profile(measured_steps(np.random.default_rng(0)), "fitted", "")
    assert error < 0.02
    for starts, counts in [
        ((0,), (128,)),
        ((700,), (1,)),
        ((50, 900, 3), (1, 1, 200)),
        ((100,) * 20, (1,) * 20),
    ]:
        shape = ints(*starts), ints(*counts)
        assert fitted.step_seconds(*shape) == pytest.approx(TRUE.step_seconds(*shape), rel=0.1)


@pytest.mark.parametrize("seed", range(20))
def test_nnls_agrees_with_scipy(seed):
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    matrix, target = rng.normal(size=(30, 8)), rng.normal(size=30)
    matrix[:, 3] = matrix[:, 2] * 0.5 + matrix[:, 1] * (seed % 2)
    ours, theirs = nnls(matrix, target), optimize.nnls(matrix, target)[0]
    assert ours.min() >= 0
    assert np.linalg.norm(matrix @ ours - target) == pytest.approx(np.linalg.norm(matrix @ theirs - target))
