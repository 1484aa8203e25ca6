"""A step is launched without waiting for the device, and with one copy to it, whatever can be had so.

There is no device here. What would wait for one, or copy to it otherwise than by `Staging`, is found by the operators
that torch is asked for: reading a number, finding places, making a tensor of Python's numbers.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from llmfw.core.device.staging import Staging
from llmfw.core.engine.engine import Engine
from llmfw.core.engine.model_runner import ModelRunner
from llmfw.core.request import Request, SamplingParams
from llmfw.core.sampling import sampler

from ...doubles.trie_grammar import FIRST_BYTE, one_of
from ..device.test_graphs import build_captured
from .running import random_prompts, run
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model

aten = torch.ops.aten
WAITING = {
    *(aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.equal, aten.is_nonzero),
    *(aten._unique2, aten.unique_dim, aten.lift_fresh, aten.bincount),
}


class Watching(TorchDispatchMode):
    """Notes operators that would wait for a device, but for the double of an attention backend."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        picks = func.overloadpacket in (aten.index, aten.index_put_) and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        if func.overloadpacket in WAITING or picks:
            frames = traceback.extract_stack()
            ours = next(f for f in reversed(frames) if "torch/" not in f.filename and f.filename != __file__)
            if "static_attention" not in ours.filename:
                self.waits.append(f"{func} by {ours.filename}:{ours.lineno}")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_other_copies() -> Iterator[None]:
    """Let nothing of the engine but `Staging` bring numbers from the host."""

    def guarded(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals["__name__"]
            assert not caller.startswith("llmfw.core"), f"{caller} calls {function.__name__}"
            return function(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("tensor", "from_numpy", "as_tensor"):
            patch.setattr(torch, name, guarded(getattr(torch, name)))
        yield


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


@pytest.fixture
def sends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []
    send = Staging.send

    def counting(self: Staging, *arrays: Any) -> list[torch.Tensor]:
        counted[-1] += bool(arrays)
        return send(self, *arrays)

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
def test_a_greedy_step_takes_one_copy_and_no_wait(
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
        (3, {"prompt_logprobs": 2, "logprobs": None}),
        # of each of the four rows one more at its start, and one in each step
        (10, {"sampling": {"logit_bias": {7: 2.0}}}),
        (10, {"sampling": {"min_tokens": 5, "stop_token_ids": (3, 4)}}),
        (10, {"sampling": {"frequency_penalty": 0.5, "repetition_penalty": 1.2}}),
        (10, {"grammar": one_of("red", "green", "greenhouse")}),
    ],
)
def test_whatever_is_asked_for_takes_a_few_copies_and_no_wait(
    llama: Path, sends: list[int], most: int, fields: dict[str, Any]
) -> None:
    engine = build_captured(llama, [], cuda_graph="lazy", overlap=True, dtype="float32")
    assert max(steps(engine, sends, eos_token_ids=(1,), **fields)) <= most


def test_where_sampling_has_to_look_at_the_logits_the_step_before_is_committed_first(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts, sampling = random_prompts(4, VOCAB_SIZE), SamplingParams(top_p=0.9, max_tokens=8, seed=3)
    expected = run(build_captured(llama, [], overlap=True, dtype="float32"), prompts, sampling)
    monkeypatch.setattr(sampler, "MAX_CANDIDATES", 8)
    order: list[str] = []
    for owner, name in ((Engine, "_commit"), (ModelRunner, "sample")):
        method = getattr(owner, name)
        monkeypatch.setattr(owner, name, noting(order, name, method))
    for overlap in (False, True):
        engine = build_captured(llama, [], overlap=overlap, dtype="float32", cuda_graph="lazy")
        assert run(engine, prompts, sampling) == expected
        assert "sample sample" not in " ".join(order)
        order.clear()


def noting(order: list[str], name: str, method: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        order.append(name)
        return method(*args, **kwargs)

    return call


def test_the_watch_sees_what_waits() -> None:
    with Watching() as watching:
        bool(torch.ones(3).any())
        torch.ones(3)[torch.ones(3) > 0]
    assert len(watching.waits) >= 2
