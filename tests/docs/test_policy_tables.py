"""The tables of the simulated policies say what the replays gave, and stand between the page's markers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "benchmarks"


@pytest.fixture(scope="module")
def policies() -> ModuleType:
    spec = importlib.util.spec_from_file_location("policies", FOLDER / "policies.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        spec.loader.exec_module(module)
    return module


def replay(policy: str, kv_tokens: int, speed: int) -> dict[str, object]:
    figures = {"hit_rate": 0.25, "ttft_p50_ms": 1500.0, "ttft_p99_ms": 61_000.0, "itl_p99_ms": 33.25}
    figures |= {"longest_wait_s": 59.5, "most_overtaken": 1200, "output_tok_s": 400.0, "fairness": 0.5}
    settings = {"kv_tokens": kv_tokens, "speed": speed}
    return figures | {"retractions": 0, "policy": policy, "settings": settings}


def test_each_size_and_speed_has_a_table(policies):
    cases = [(policy, kv, speed) for kv in policies.KV_TOKENS for speed in policies.SPEEDS for policy in "ab"]
    results = {
        "trace": "t.jsonl",
        "requests": 12031,
        "profile": "8b-h200",
        "infinite_hit_rate": 0.374,
        "lru_hit_rates": {"3000000": 0.139},
        "replays": [replay(*case) for case in cases],
    }
    text = policies.tables(results)
    assert "| LRU of 3,000,000 tokens | 0.139 |\n| infinite | 0.374 |" in text
    assert text.count("| a | 0.250 | 1.50 | 61.00 | 33.2 | 59.5 | 1,200 | 400.0 | 0.500 | 0 |") == 4
    assert text.index("800,000 tokens of KV storage, speed 2") < text.index("3,000,000 tokens of KV storage")
