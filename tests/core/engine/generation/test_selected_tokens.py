"""Models whose layers select the tokens they attend to answer as transformers does, beyond the number selected."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ModelError
from llmfw.core.base.request import Request
from llmfw.core.engine.generation.replay import replay
from llmfw.core.interfaces.kv_storage import bytes_per_token
from llmfw.core.model.models import load_model
from llmfw.core.model.parallel.tensor_parallel import check_dividable
from llmfw.core.model.states import index_rows

from ....length import also
from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config
from ....models.trial import prompts
from .running import build_engine, generate, registry
from .stateful_family import GREEDY, Family

FAMILIES = ["glm_moe_dsa", *also(["deepseek_v32", "axk2", "hy_v4", "qwen4_exp_text"])]
"""They select 8 tokens; the prompts have up to 70. In GLM-MoE-DSA, layers share what an earlier one selects. Qwen4-Exp
selects blocks of tokens, by a mask, and has layers with states."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(request.param, tmp_path_factory.mktemp("model"))


def _requests() -> list[Request]:
    return [
        Request(id=str(i), prompt=prompt, sampling=GREEDY, logprobs=0) for i, prompt in enumerate(prompts())
    ]


@pytest.mark.parametrize(
    ("chunk", "overlap", "page_size", "max_pairs"),
    [(16, False, 4, 1 << 20), (64, True, 1, 1 << 20), (64, False, 16, 100)],
)
def test_answers_equal_those_of_transformers(
    family: Family,
    chunk: int,
    overlap: bool,
    page_size: int,
    max_pairs: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prompts come while others decode, and again when all are cached; few pairs at once cut prompts into blocks."""
    monkeypatch.setattr(index_rows, "MAX_PAIRS", max_pairs)
    engine = family.engine(chunked_prefill_size=chunk, overlap=overlap, page_size=page_size)
    for seed in (chunk, 1):
        outcomes = generate(engine, _requests(), seed=seed)
        for prompt, outcome in zip(prompts(), outcomes, strict=True):
            family.check(prompt, outcome)
    assert max(outcome.events[0].cached_tokens for outcome in outcomes) >= 16


def test_retraction_keeps_the_selection(family: Family) -> None:
    engine = family.engine(
        chunked_prefill_size=16, overlap=True, max_total_tokens=150, schedule_conservativeness=0.01
    )
    outcomes = generate(engine, _requests())
    assert engine.stats().num_retractions > 0
    for prompt, outcome in zip(prompts(), outcomes, strict=True):
        family.check(prompt, outcome)


def test_rejected_drafts_leave_no_trace(tmp_path: Path) -> None:
    family = Family("glm_moe_dsa", tmp_path)
    engine = family.engine(chunked_prefill_size=16, drafter="prompt-lookup")
    for prompt, outcome in zip(prompts(), generate(engine, _requests(), seed=2), strict=True):
        family.check(prompt, outcome)


def test_recorded_steps_with_selections_replay(tmp_path: Path) -> None:
    family, path = Family("glm_moe_dsa", tmp_path / "model"), tmp_path / "steps"
    engine = family.engine(chunked_prefill_size=16, record_steps=str(path))
    generate(engine, _requests(), seed=3)
    steps = list(replay(path, registry()))
    assert steps
    assert not any(step.differences for step in steps)


def test_index_keys_count_as_memory(tmp_path: Path) -> None:
    """A key and a value have 4 heads of 16 and of 12 elements, an index key has 16; a layer that shares has none."""
    config = tiny_config("glm_moe_dsa", indexer_types=["full", "full", "full", "shared"])
    folder = save_checkpoint(config, tmp_path)
    layers = load_model(EngineConfig(model=str(folder), device="cpu"), torch.device("cpu"), registry()).layers
    assert all(layer.selects for layer in layers)
    assert [layer.index_size for layer in layers] == [16, 16, 16, 0]
    assert bytes_per_token(layers, torch.float16) == (4 * 4 * (16 + 12) + 3 * 16) * 2


def test_backends_that_attend_to_all_are_refused(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("glm_moe_dsa"), tmp_path)
    with pytest.raises(
        ComponentError, match="it attends to all tokens, and layers of this model select some"
    ):
        build_engine(folder, attention="cpu", grammar="none")


def test_keys_in_fp8_select_almost_the_same(tmp_path: Path) -> None:
    folder = save_checkpoint(tiny_config("glm_moe_dsa", index_topk=200), tmp_path)
    exact, narrow = (
        generate(build_engine(folder, kv_cache_dtype=dtype, grammar="none"), _requests())
        for dtype in ("auto", "fp8_e4m3")
    )
    first = [(a.token_ids[0], b.token_ids[0]) for a, b in zip(exact, narrow, strict=True)]
    assert sum(a == b for a, b in first) >= 4


def test_ranks_are_refused_in_one_line() -> None:
    with pytest.raises(ModelError, match="layers of glm_moe_dsa select tokens; leave out --tp"):
        check_dividable(tiny_config("glm_moe_dsa"), "a", 2, None)
