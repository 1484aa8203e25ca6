"""A step is launched without waiting for the device, and with one copy to it, whatever can be had so.

There is no device here. What would wait for one, or copy to it otherwise than by `Staging`, is found by the operators
that torch is asked for: reading a number, finding places, making a tensor of Python's numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.step.device.staging import Staging
from llmfw.plugins.sampling_torch.sampler import TorchSampler

from ....doubles.trie_grammar import FIRST_BYTE, one_of
from ....doubles.watching import Watching, no_other_copies
from ...step.test_graphs import build_captured
from .running import random_prompts, run
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    send = Staging.send

    def counting(self: Staging, *arrays: Any, **how: Any) -> list[torch.Tensor]:
        counted[-1] += bool(arrays)
        return send(self, *arrays, **how)

    monkeypatch.setattr(Staging, "send", counting)
    return counted


def steps(engine: Engine, sends: list[int], **fields: Any) -> list[int]:
    """Run four requests to their end; return how many copies each step took."""
    sends.append(0)
    with no_other_copies(), Watching() as watching:
        for i, prompt in enumerate(random_prompts(4, VOCAB_SIZE)):
            sampling = SamplingParams(**({"max_tokens": 6, "seed": i} | fields.get("sampling", {})))
            asked = {name: value for name, value in fields.items() if name != "sampling"}
            engine.add(Request(id=str(i), prompt=prompt, sampling=sampling, **asked))
        while engine.has_work or engine.stats().num_waiting:
            sends.append(0)
            engine.step()
    assert not watching.waits
    return [count for count in sends if count]


@pytest.mark.parametrize("cuda_graph", ["lazy", "off"])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_greedy_step_copies_once_without_sync(
    llama: Path, sends: list[int], cuda_graph: str, overlap: bool
) -> None:
    engine = build_captured(llama, [], cuda_graph=cuda_graph, overlap=overlap, dtype="float32")
    counts = steps(engine, sends, sampling={"temperature": 0})
    assert len(counts) >= 6
    assert set(counts) == {1}


@pytest.mark.parametrize(
    ("most", "fields"),
    [
        (2, {"sampling": {"temperature": 0.7}}),
        (2, {"sampling": {"top_k": 20, "top_p": 0.9, "min_p": 0.01}}),
        (3, {"logprobs": 3}),
        (3, {"logprobs": 3, "logprob_token_ids": (5, 9)}),
        (3, {"prompt_logprobs": 2, "logprobs": None}),
        (3, {"prompt_logprobs": 0, "prompt_logprob_token_ids": (5, 9)}),
        (3, {"sampling": {"logit_bias": {7: 2.0}}}),
        (3, {"sampling": {"min_tokens": 5, "stop_token_ids": (3, 4)}}),
        (4, {"sampling": {"frequency_penalty": 0.5, "repetition_penalty": 1.2}}),  # one to begin with
        (3, {"grammar": one_of("red", "green", "greenhouse")}),
    ],
)
def test_any_sampling_copies_rarely_without_sync(
    llama: Path, sends: list[int], most: int, fields: dict[str, Any]
) -> None:
    engine = build_captured(llama, [], cuda_graph="lazy", overlap=True, dtype="float32")
    assert max(steps(engine, sends, eos_token_ids=(1,), **fields)) <= most


@pytest.mark.long
def test_filters_of_any_width_need_no_sync(
    llama: Path, sends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = random_prompts(4, VOCAB_SIZE)
    sampling: dict[str, Any] = {"top_p": 0.9, "max_tokens": 8, "seed": 3}
    sends.append(0)
    all_sorted = build_captured(llama, [], overlap=True, dtype="float32")
    expected = run(all_sorted, prompts, SamplingParams(**sampling))
    monkeypatch.setattr(TorchSampler, "small_top_k", 8)
    for overlap in (False, True):
        engine = build_captured(llama, [], overlap=overlap, dtype="float32", cuda_graph="lazy")
        assert run(engine, prompts, SamplingParams(**sampling)) == expected
        sends.clear()
        assert max(steps(engine, sends, sampling=sampling)) <= 2


def test_the_watcher_detects_synchronization() -> None:
    with Watching() as watching:
        bool(torch.ones(3).any())
        torch.ones(3)[torch.ones(3) > 0]
    assert len(watching.waits) >= 2
