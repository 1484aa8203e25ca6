"""The limits are those of arithmetic written down elsewhere: Llama-3.1-8B in bfloat16 on an H200."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from .gpu_script import FOLDER, gpu_script


@pytest.fixture(scope="module")
def limits() -> Iterator[ModuleType]:
    with gpu_script("limits", "sizes") as (module, sizes):
        module.LLAMA = module.Shape.of(sizes.LLAMA_8B)
        module.H200 = module.Ceilings(bandwidth=4.3e12, flops=788e12)
        yield module


def test_the_shape_has_the_weights_of_the_model(limits):
    assert limits.LLAMA.parameters == 8_030_261_248
    assert limits.LLAMA.kv_bytes == 131_072
    assert limits.LLAMA.step_bytes / 1e9 == pytest.approx(15.01, abs=0.01)


@pytest.mark.parametrize(
    ("batch", "context", "weights", "arithmetic", "kv", "whole", "tok_s"),
    [
        (1, 60, 3.49, 0.02, 0.00, 3.49, 286),
        (8, 305, 3.49, 0.15, 0.07, 3.57, 2_240),
        (64, 305, 3.49, 1.22, 0.60, 4.09, 15_670),
        (100, 100, 3.49, 1.90, 0.31, 3.80, 26_340),
        (100, 500, 3.49, 1.90, 1.52, 5.02, 19_940),
        (256, 305, 3.49, 4.88, 2.38, 7.26, 35_280),
        (500, 81, 3.49, 9.52, 1.24, 10.76, 46_470),
        (500, 401, 3.49, 9.52, 6.11, 15.64, 31_980),
    ],
)
def test_decode_limits_match_hand_calculations(limits, batch, context, weights, arithmetic, kv, whole, tok_s):
    found = limits.step_limit(limits.LLAMA, limits.H200, batch, context)
    parts = [1000 * part for part in (found.weights, found.arithmetic, found.kv, found.seconds)]
    assert parts == pytest.approx([weights, arithmetic, kv, whole], abs=0.011)
    assert batch / found.seconds == pytest.approx(tok_s, rel=0.002)


@pytest.mark.parametrize(("batch", "tok_s"), [(1, 286), (100, 22_630), (500, 35_300)])
def test_whole_workload_limits_match_hand_calculations(limits, batch, tok_s):
    seconds = limits.decode_seconds(limits.LLAMA, limits.H200, batch, 55, 500)
    assert batch * 499 / seconds == pytest.approx(tok_s, rel=0.01)


@pytest.mark.parametrize(("prompt", "tok_s"), [(512, 55_900), (1024, 55_400), (8192, 48_900)])
def test_prefill_limits_match_hand_calculations(limits, prompt, tok_s):
    seconds = limits.prefill_seconds(limits.LLAMA, limits.H200, 8192 // prompt, prompt)
    assert 8192 / seconds == pytest.approx(tok_s, rel=0.01)


def test_a_cached_prefix_is_attended_but_not_computed(limits):
    shape, rates = limits.LLAMA, limits.H200
    assert limits.prefill_seconds(shape, rates, 500, 30, 25) == pytest.approx(0.27, abs=0.01)
    plain, behind, whole = (limits.prefill_seconds(shape, rates, 8, *c) for c in ((30,), (30, 4000), (4030,)))
    assert plain <= behind < whole


def test_a_workload_sums_its_prompts_and_steps(limits):
    shape, rates = limits.LLAMA, limits.H200
    steps = limits.decode_seconds(shape, rates, 100, 55, 500)
    whole = limits.workload_seconds(shape, rates, 100, 55, 500)
    assert whole == pytest.approx(steps + limits.prefill_seconds(shape, rates, 100, 55))


def test_a_tied_output_layer_is_counted_once(limits):
    tied = limits.Shape(64, 128, 512, 2, 4, 2, 16, tied=True)
    assert tied.parameters == tied.body + 512 * 64


def test_the_page_has_the_same_limits_and_goals(limits):
    page = (FOLDER.parent / "gpu.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+), (\d+) \| .* \| ([\d.]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert len(rows) == 8
    for batch, context, milliseconds, tok_s in rows:
        seconds = limits.step_limit(limits.LLAMA, limits.H200, int(batch), int(context)).seconds
        assert 1000 * seconds == pytest.approx(float(milliseconds), abs=0.011)
        assert int(batch) / seconds == pytest.approx(int(tok_s.replace(",", "")), rel=0.002)
    for goal in limits.GOALS.values():
        assert f"| {goal.must:.2f} | {goal.goal:.2f} |" in page
