"""Snapshots in 8 bits are reused like exact ones, and change log probabilities a little."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError

from .stateful_family import Family
from .test_snapshots import answer, cached, draw

PACKED = {"state_snapshot_dtype": "int8", "max_state_snapshots": 6}
LOOSE = 0.05
"""Log probabilities of these models differ by less if their states are rounded."""


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [
        ("granitemoehybrid", {"mamba_d_state": 64}),
        ("qwen3_5_text", {"linear_value_head_dim": 64, "linear_key_head_dim": 64}),
    ],
)
def test_rounded_snapshots_are_reused(
    model_type: str, changes: dict[str, int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    family = Family(model_type, tmp_path, **changes)
    with caplog.at_level("INFO"):
        engine = family.engine(**PACKED)
    assert "rounded to 8 bits, which changes a state by 0.0" in caplog.text
    rng = random.Random(1)
    first = draw(rng, 80)
    second = first[:70] + draw(rng, 10)
    hits = []
    for prompt in (first, first, second, second, second):
        outcome = answer(engine, prompt)
        family.check(prompt, outcome, LOOSE)
        hits.append(cached(outcome))
    assert hits == [0, 79, 0, 70, 70]


def test_short_rows_alone_are_refused(tmp_path: Path) -> None:
    """LFM2 keeps the last few inputs of convolutions, of which 8 bits would save nothing."""
    with pytest.raises(ConfigError, match="keeps no states whose rows have 32 numbers or more"):
        Family("lfm2", tmp_path).engine(**PACKED)
