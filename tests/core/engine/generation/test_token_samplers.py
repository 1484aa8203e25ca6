"""Which token sampler draws, and what a faulty one costs."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.base.request import FinishReason, GrammarSpec, Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.engine.generation.token_sampler_choice import choose_token_sampler
from llmfw.core.interfaces.token_sampler import Filters, RowNumbers
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.plugins.sampling_torch.sampler import TorchSampler

from ....doubles.trie_grammar import FIRST_BYTE, one_of
from .running import GREEDY, TRIE, build_engine, generate, installed, random_prompts, run
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model

CPU = torch.device("cpu")
DRAWN = SamplingParams(max_tokens=6, seed=1, top_p=0.9)


class Picky(TorchSampler):
    @classmethod
    def unsupported(cls, device: str, vocab_size: int) -> str | None:
        return "it has no such day"


class Unbuildable(TorchSampler):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise ZeroDivisionError("no compiler")


class Raising(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        raise ZeroDivisionError("no such row")


class RaisingLate(TorchSampler):
    """Raises in its fourth call, in which rows of an unfinished step may be in flight."""

    num_calls = 0

    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        self.num_calls += 1
        if self.num_calls == 4:
            raise ZeroDivisionError("no such row")
        return super().sample(logits, numbers, filters)


class Short(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return super().sample(logits, numbers, filters)[:0]


class Integers(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return super().sample(logits, numbers, filters).int()


class Lists(TorchSampler):
    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        return super().sample(logits, numbers, filters).tolist()  # type: ignore[return-value]


def entry(kind: type[TorchSampler], rank: int = 0, devices: tuple[str, ...] = ()) -> Entry:
    path = f"{kind.__module__}:{kind.__name__}"
    return Entry(
        "token_sampler", kind.__name__.lower(), path, "ext", "llmfw-ext", "1.2", rank=rank, devices=devices
    )


def chosen(setting: str, *entries: Entry) -> str:
    found = choose_token_sampler(setting, Registry(entries), 100, CPU, may_wait=True)
    assert found.component.vocab_size == 100
    return found.entry.name


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


def test_auto_takes_the_best_that_works(caplog: pytest.LogCaptureFixture) -> None:
    plain = entry(TorchSampler)
    assert chosen("auto", plain, entry(Picky, 5), entry(Unbuildable, 7), entry(Raising, 9, ("cuda",))) == (
        "torchsampler"
    )
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "no compiler" in warning
    assert chosen("auto", plain, entry(Raising, 1)) == "raising"


def test_a_named_sampler_must_work() -> None:
    with pytest.raises(ComponentError, match="picky: it has no such day"):
        chosen("picky", entry(TorchSampler), entry(Picky))
    with pytest.raises(ComponentError, match="no compiler"):
        chosen("unbuildable", entry(Unbuildable))
    with pytest.raises(ConfigError, match="tortch"):
        chosen("tortch", entry(TorchSampler))
    with pytest.raises(ComponentError, match="no plugin brings one"):
        chosen("auto")


def test_a_wrong_name_is_reported_before_loading() -> None:
    with pytest.raises(ConfigError, match="unknown token sampler 'tortch'"):
        build_engine(Path("missing"), token_sampler="tortch")


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Raising, "ZeroDivisionError: no such row"),
        (Short, r"tokens of \[0\] int64 on cpu; they must be \[1\] int64 on cpu"),
        (Integers, r"tokens of \[1\] int32 on cpu"),
        (Lists, "returned a list, not the tokens"),
    ],
)
def test_a_faulty_sampler_ends_only_its_step(
    llama: Path, kind: type[TorchSampler], reason: str, overlap: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine = engine_with(entry(kind, 1), llama, overlap)
    engine.add(Request(id="bad", prompt=[3, 4], sampling=DRAWN))
    events = []
    while engine.has_work:
        events += engine.step()
    [event] = events
    assert (event.finish_reason, event.error_kind) == (FinishReason.ERROR, "ComponentFailedError")
    assert f"token sampler {kind.__name__.lower()!r} of plugin 'ext'" in str(event.error)
    [record] = [each.getMessage() for each in caplog.records if "llmfw-ext 1.2" in each.getMessage()]
    assert re.search(reason, record)
    prompts = random_prompts(2, VOCAB_SIZE)
    assert run(engine, prompts, GREEDY) == run(build_engine(llama), prompts, GREEDY)


@pytest.mark.parametrize("grammar", [None, one_of(*map("".join, product("xy", repeat=6)))])
@pytest.mark.parametrize("overlap", [False, True])
def test_requests_of_earlier_steps_keep_their_tokens(
    llama: Path, grammar: GrammarSpec | None, overlap: bool
) -> None:
    """Three steps were sampled, of which one may be in flight when the fourth one fails."""
    engine = engine_with(entry(RaisingLate, 1), llama, overlap)
    expected = generate(build_engine(llama, grammar="trie"), [asked("a", grammar)])[0].token_ids
    engine.add(asked("a", grammar))
    events = []
    while engine.has_work or engine.stats().num_waiting:
        events += engine.step()
    assert [token for event in events for token in event.token_ids] == expected[:3]
    assert [event.finish_reason for event in events if event.finish_reason] == [FinishReason.ERROR]
    again = [asked("b", grammar), asked("c", grammar)]
    assert [each.token_ids for each in generate(engine, again)] == [expected, expected]


def asked(id: str, grammar: GrammarSpec | None) -> Request:
    return Request(id=id, prompt=[3, 4], sampling=DRAWN, grammar=grammar, eos_token_ids=(1,))


def engine_with(sampler: Entry, llama: Path, overlap: bool) -> Engine:
    others = (each for each in installed() if each.kind in ("policy", "eviction", "attention"))
    config = EngineConfig(
        model=str(llama), device="cpu", dtype="float32", grammar="trie", max_total_tokens=512, overlap=overlap
    )
    return build_generation_engine(config, Registry([sampler, TRIE, *others]))
