"""Seeds of requests that bring none."""

from __future__ import annotations

from llmfw.core.base.seeds import derive_seed


def test_derived_seeds_differ() -> None:
    assert len({derive_seed(base, number) for base in range(30) for number in range(30)}) == 900


def test_derived_seeds_stay_the_same() -> None:
    """A server that is started again with its `--random-seed` repeats its texts, also with a later version."""
    assert derive_seed(0, 0) == 6017775124710473527
    assert derive_seed(2**63 - 1, 12345) == 1883503302819599985
