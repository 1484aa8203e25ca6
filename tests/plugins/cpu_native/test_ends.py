"""A whole step in one native call says what its parts say one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.attention.hf_attention import AttentionStep
from llmfw.plugins.cpu_native.headed import HeadedForward
from llmfw.plugins.cpu_native.library import largest, load_library, why_not

from ...core.engine.generation.running import build_engine, generate, random_prompts
from ...core.engine.generation.tiny_models import SERVABLE, save_random_model

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))

SAMPLING = SamplingParams(temperature=0.5, seed=1, max_tokens=12)


def headed(engine: Engine) -> HeadedForward:
    forward = engine._executor._model.module.forward
    assert isinstance(forward, HeadedForward)
    return forward


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True, "vocab_size": 250}], ids=["", "tied"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_native_call_equals_several(
    changes: dict[str, Any], dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_class, others = SERVABLE["llama"]
    folder = save_random_model(tmp_path, config_class, others | changes)
    found = []
    for whole in (True, False):
        engine = build_engine(folder, module_passes="cpu-native", attention="cpu", dtype=dtype)
        assert headed(engine)._ends is not None
        if not whole:
            monkeypatch.setattr(headed(engine), "_ends", None)
        asked = [
            Request(id=str(i), prompt=prompt, sampling=SAMPLING, logprobs=3, prompt_logprobs=i % 2 or None)
            for i, prompt in enumerate(random_prompts(6, 250))
        ]
        outcomes = generate(engine, asked, seed=2)
        found.append([[replace(event, queued_us=0) for event in each.events] for each in outcomes])
    assert found[0] == found[1]


@pytest.mark.parametrize("token_id", [-1, 10**6])
def test_a_token_out_of_range_is_refused(token_id: int, tmp_path: Path) -> None:
    engine = build_engine(
        save_random_model(tmp_path, *SERVABLE["llama"]), module_passes="cpu-native", attention="cpu"
    )
    runner, ends = engine._executor, headed(engine)._ends
    step = AttentionStep(runner._backend, runner._model.layers, None)  # type: ignore[arg-type]
    assert ends is not None
    with pytest.raises(IndexError, match="below"):
        ends.logits(torch.tensor([[token_id]]), torch.tensor([[0]]), 0, step)


def test_more_sampled_rows_than_tokens_work(tmp_path: Path) -> None:
    engine = build_engine(
        save_random_model(tmp_path, *SERVABLE["llama"]), module_passes="cpu-native", attention="cpu"
    )
    generate(
        engine, [Request(id="a", prompt=[1, 2, 3], sampling=SAMPLING)], seed=1
    )  # its last step had one token
    runner, ends = engine._executor, headed(engine)._ends
    step = AttentionStep(runner._backend, runner._model.layers, None)  # type: ignore[arg-type]
    assert ends is not None
    token, position = torch.tensor([[5]]), torch.tensor([[0]])
    once = ends.logits(token, position, torch.tensor([0]), step)
    often = ends.logits(token, position, torch.zeros(3000, dtype=torch.int64), step)
    assert once is not None
    assert often is not None
    assert torch.equal(often, once.expand_as(often))
    assert ends._stack._capacity >= 3000


def test_negative_numbers_compare_as_largest() -> None:
    library = load_library(torch.float32)
    assert largest(library, torch.tensor([3, 7, 5])) == 7
    assert largest(library, torch.tensor([3, -1])) >= 2**63
    assert largest(library, torch.empty(0, dtype=torch.int64)) == 0
