"""A model served with the kernels, in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.core.base.request import SamplingParams

from ....core.engine.generation.running import build_engine, run
from ....core.engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model


@pytest.mark.parametrize(
    "family",
    [
        "llama",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("gemma 2 (soft cap)", "gpt-oss (sinks)")),
    ],
)
def test_models_generate_the_reference_backend_s_tokens(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    prompts = [[place * step % (VOCAB_SIZE - 2) + 2 for place in range(30)] for step in (1, 7, 11)]
    prompts[1] = prompts[1][:3]
    sampling = SamplingParams(temperature=0, max_tokens=4)
    texts = [run(build_engine(folder, attention=name), prompts, sampling) for name in ("triton", "torch")]
    assert texts[0] == texts[1]


def test_fp8_text_equals_the_reference_backend_s(tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    prompts = [[place * step % (VOCAB_SIZE - 2) + 2 for place in range(20)] for step in (1, 7)]
    sampling = SamplingParams(temperature=0, max_tokens=4)
    engines = [build_engine(folder, attention=name, kv_cache_dtype="fp8") for name in ("triton", "torch")]
    texts = [run(engine, prompts, sampling) for engine in engines]
    assert texts[0] == texts[1]
