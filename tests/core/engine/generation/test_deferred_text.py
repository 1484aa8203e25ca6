"""What a request generates does not depend on whether it was paused, retracted, or ran beside live ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from llmfw.core.base.request import Request, SamplingParams

from ....length import also_each
from .running import build_engine, generate, random_prompts
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    kinds = [{"temperature": 0.0}, {"top_p": 0.9}, {"frequency_penalty": 0.5, "repetition_penalty": 1.2}]
    return [
        Request(id=str(i), prompt=prompt, sampling=SamplingParams(max_tokens=28, seed=i, **kinds[i % 3]))
        for i, prompt in enumerate(random_prompts(20, VOCAB_SIZE))
    ]


@pytest.fixture(scope="module")
def alone(llama: Path, requests: list[Request]) -> list[list[int]]:
    engine = build_engine(llama)
    return [generate(engine, [request])[0].token_ids for request in requests]


@pytest.mark.parametrize(
    ("max_running_requests", "share", "overlap"),
    [
        *((3, 0.0, False), (3, 0.3, True), (128, 0.0, True), (128, 0.3, False)),  # each two of them together
        *also_each((3, 0.0, True), (3, 0.3, False), (128, 0.0, False), (128, 0.3, True)),
    ],
)
def test_deferrable_text_equals_the_single_run(
    llama: Path,
    requests: list[Request],
    alone: list[list[int]],
    max_running_requests: int,
    share: float,
    overlap: bool,
) -> None:
    engine = build_engine(
        llama,
        overlap=overlap,
        batch_share=share,
        max_running_requests=max_running_requests,
        max_total_tokens=400,
        chunked_prefill_size=16,
        schedule_conservativeness=0.05,
    )
    mixed = [msgspec.structs.replace(r, deferrable=i < 14 and i != 8) for i, r in enumerate(requests)]
    outcomes = generate(engine, mixed, seed=1)
    assert [outcome.token_ids for outcome in outcomes] == alone
    assert engine.stats().num_retractions > 0
    assert engine.stats().num_deferrable_running == engine.stats().num_deferrable_waiting == 0
