"""A wrong grammar is found before the engine hears of it, in another process, and once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmfw.api.text.generation import Generator
from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.base.errors import (
    ComponentError,
    GrammarCostError,
    OverloadedError,
    RequestError,
    UnknownComponentError,
)
from llmfw.core.base.request import GrammarSpec
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.interfaces.grammar import Grammar, GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.plugin.grammar_choice import choose_grammar_backend
from llmfw.core.plugin.registry import Entry, Registry

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import byte_tokenizer

GOOD, BAD = GrammarSpec("regex", "a"), GrammarSpec("regex", "(")


class BrokenBackend(GrammarBackend):
    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        raise OSError("no such library")

    def compile(self, spec: GrammarSpec) -> Grammar:
        raise NotImplementedError

    def fill_masks(self, grammars: object, masks: object) -> None:
        raise NotImplementedError


class RefusingBackend(BrokenBackend):
    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        raise RequestError("no such tokens can be constrained")


class FakeProver:
    """Notes what it is asked; refuses "(", and waits for "wait" without an end."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.num_cancelled = 0

    async def prove(self, spec: GrammarSpec, tenant: str = "") -> GrammarSpec:
        self.asked.append((spec.source, tenant))
        try:
            await asyncio.sleep(60 if spec.source == "wait" else 0.01)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        if spec.source == "(":
            raise RequestError("the regular expression ends too early")
        if spec.source == "bomb":
            raise GrammarCostError("it takes too long", code="grammar_timeout")
        if spec.source == "busy":
            raise OverloadedError("too many wait")
        return GrammarSpec("prepared", spec.source)


def entry(name: str, cls: type = BrokenBackend, rank: int = 0, needs: tuple[str, ...] = ()) -> Entry:
    path = f"{cls.__module__}:{cls.__name__}"
    return Entry("grammar", name, path, "p", "d", "1", rank=rank, needs=needs)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return byte_tokenizer(tmp_path)


@pytest.fixture
def checker(tokenizer: Tokenizer) -> GrammarChecker:
    return GrammarChecker(entry("x"), tokenizer, 300)


@pytest.fixture
def prover(checker: GrammarChecker) -> FakeProver:
    fake = FakeProver()
    checker._prover = fake  # type: ignore[assignment]
    return fake


async def test_a_wrong_grammar_names_the_client_s_parameter(
    checker: GrammarChecker, prover: FakeProver
) -> None:
    assert await checker.check(GOOD, "guided_regex") == GrammarSpec("prepared", "a")
    with pytest.raises(RequestError, match=r"guided_regex: .* ends too early") as caught:
        await checker.check(BAD, "guided_regex")
    assert caught.value.param == "guided_regex"


async def test_each_grammar_is_checked_once(checker: GrammarChecker, prover: FakeProver) -> None:
    for _ in range(3):
        await checker.check(GOOD, "a", "alice")
        for source in ("(", "bomb"):
            with pytest.raises(RequestError):
                await checker.check(GrammarSpec("regex", source), "b")
    assert prover.asked == [("a", "alice"), ("(", ""), ("bomb", "")]


async def test_a_costly_grammar_is_refused_with_its_code(checker: GrammarChecker, prover: FakeProver) -> None:
    with pytest.raises(RequestError, match="p: it takes too long") as caught:
        await checker.check(GrammarSpec("regex", "bomb"), "p")
    assert (caught.value.code, caught.value.param) == ("grammar_timeout", "p")


async def test_overload_is_not_cached(checker: GrammarChecker, prover: FakeProver) -> None:
    for _ in range(2):
        with pytest.raises(OverloadedError):
            await checker.check(GrammarSpec("regex", "busy"), "p")
    assert len(prover.asked) == 2


async def test_requests_with_one_grammar_share_its_check(checker: GrammarChecker, prover: FakeProver) -> None:
    found = await asyncio.gather(*(checker.check(GOOD, "p") for _ in range(5)))
    assert len(set(found)) == len(prover.asked) == 1


async def test_a_grammar_without_clients_is_cancelled(checker: GrammarChecker, prover: FakeProver) -> None:
    waiting = [asyncio.create_task(checker.check(GrammarSpec("regex", "wait"), "p")) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    await asyncio.sleep(0.01)
    assert prover.num_cancelled == 0
    waiting[1].cancel()
    await asyncio.sleep(0.01)
    assert prover.num_cancelled == 1
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_without_a_backend_structured_output_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="no grammar backend") as caught:
        await GrammarChecker(None, tokenizer, 300).check(GOOD, "response_format")
    assert caught.value.param == "response_format"


@pytest.fixture
async def broken(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GrammarChecker]:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3])])
    found = GrammarChecker(entry("x"), tokenizer, 300)
    yield found
    await found.close()


async def test_an_unbuildable_backend_is_named_with_the_reason(broken: GrammarChecker) -> None:
    with pytest.raises(ComponentError, match=r"grammar 'x' .* cannot be built: OSError: no such library"):
        await broken.check(GOOD, "p")


async def test_a_refused_tokenizer_is_a_client_s_error(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[3])])
    checker = GrammarChecker(entry("x", RefusingBackend), tokenizer, 300)
    for spec in (GOOD, BAD):
        with pytest.raises(RequestError, match=r"^p: no such tokens can be constrained$") as caught:
            await checker.check(spec, "p")
        assert caught.value.param == "p"
    await checker.close()


def test_auto_chooses_the_best_importable_backend() -> None:
    registry = Registry(
        [entry("low"), entry("high", rank=9, needs=("no_such_module",)), entry("mid", rank=5)]
    )
    chosen = choose_grammar_backend("auto", registry)
    assert chosen is not None
    assert chosen.name == "mid"
    assert choose_grammar_backend("none", registry) is None
    assert choose_grammar_backend("auto", Registry()) is None
    with pytest.raises(UnknownComponentError, match="unknown grammar 'midd'"):
        choose_grammar_backend("midd", registry)


async def test_structured_output_needs_a_checker(tokenizer: Tokenizer) -> None:
    client = InprocEngineClient(EchoEngine())
    await client.start()
    try:
        with pytest.raises(RequestError, match="no grammar backend"):
            await Generator(client, tokenizer, "m").check_grammar(GOOD, "p")
    finally:
        await client.close()
