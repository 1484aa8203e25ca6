"""A wrong grammar is found before the engine hears of it, and off the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from llmfw.api.generation import Generator
from llmfw.api.grammar_check import GrammarChecker
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.errors import PartError, RequestError, UnknownPartError
from llmfw.core.grammar import Grammar, GrammarBackend
from llmfw.core.parts.grammar_choice import choose_grammar_backend
from llmfw.core.registry import Entry, Registry
from llmfw.core.request import GrammarSpec
from llmfw.core.tokenizer import Tokenizer

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import byte_tokenizer

GOOD, BAD = GrammarSpec("regex", "a"), GrammarSpec("regex", "(")


class CountingBackend(GrammarBackend):
    """Refuses "(", and notes what it is asked and where."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.asked: list[str] = []
        made.append(self)

    def compile(self, spec: GrammarSpec) -> Grammar:
        assert threading.current_thread() is not threading.main_thread()
        time.sleep(0.05)
        self.asked.append(spec.source)
        if spec.source == "(":
            raise RequestError("the regular expression ends too early")
        return None  # type: ignore[return-value]

    def fill_masks(self, grammars: object, masks: object) -> None:
        raise NotImplementedError


class BrokenBackend(CountingBackend):
    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        raise OSError("no such library")


made: list[CountingBackend] = []


def entry(name: str, cls: type = CountingBackend, rank: int = 0, needs: tuple[str, ...] = ()) -> Entry:
    path = f"{cls.__module__}:{cls.__name__}"
    return Entry("grammar", name, path, "p", "d", "1", rank=rank, needs=needs)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    made.clear()
    return byte_tokenizer(tmp_path)


async def test_a_wrong_grammar_is_refused_with_the_clients_parameter(tokenizer: Tokenizer) -> None:
    checker = GrammarChecker(entry("x"), tokenizer, 300)
    await checker.check(GOOD, "guided_regex")
    with pytest.raises(RequestError, match=r"guided_regex: .* ends too early") as caught:
        await checker.check(BAD, "guided_regex")
    assert caught.value.param == "guided_regex"
    assert made[0].vocab_size == 300


async def test_a_verdict_is_given_once_for_each_grammar(tokenizer: Tokenizer) -> None:
    checker = GrammarChecker(entry("x"), tokenizer, 300)
    for _ in range(3):
        await checker.check(GOOD, "a")
        with pytest.raises(RequestError):
            await checker.check(BAD, "b")
    assert made[0].asked == ["a", "("]


async def test_the_backend_is_made_once_at_the_first_use(tokenizer: Tokenizer) -> None:
    checker = GrammarChecker(entry("x"), tokenizer, 300)
    assert not made
    await asyncio.gather(*(checker.check(GrammarSpec("regex", text), "p") for text in "abc"))
    assert len(made) == 1


async def test_the_event_loop_runs_on_while_a_grammar_is_compiled(tokenizer: Tokenizer) -> None:
    check = asyncio.create_task(GrammarChecker(entry("x"), tokenizer, 300).check(GOOD, "p"))
    turns = 0
    while not check.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 5


async def test_without_a_backend_structured_output_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match="no grammar backend") as caught:
        await GrammarChecker(None, tokenizer, 300).check(GOOD, "response_format")
    assert caught.value.param == "response_format"


async def test_a_backend_that_cannot_be_built_is_named_with_the_reason(tokenizer: Tokenizer) -> None:
    with pytest.raises(PartError, match=r"grammar 'x' .* cannot be built: OSError: no such library"):
        await GrammarChecker(entry("x", BrokenBackend), tokenizer, 300).check(GOOD, "p")


def test_the_best_backend_that_can_be_imported_is_the_automatic_choice() -> None:
    registry = Registry(
        [entry("low"), entry("high", rank=9, needs=("no_such_module",)), entry("mid", rank=5)]
    )
    chosen = choose_grammar_backend("auto", registry)
    assert chosen is not None
    assert chosen.name == "mid"
    assert choose_grammar_backend("none", registry) is None
    assert choose_grammar_backend("auto", Registry()) is None
    with pytest.raises(UnknownPartError, match="unknown grammar 'midd'"):
        choose_grammar_backend("midd", registry)


async def test_a_generator_without_a_checker_has_no_structured_output(tokenizer: Tokenizer) -> None:
    client = InprocEngineClient(EchoEngine())
    await client.start()
    try:
        with pytest.raises(RequestError, match="no grammar backend"):
            await Generator(client, tokenizer, "m").check_grammar(GOOD, "p")
    finally:
        await client.close()
