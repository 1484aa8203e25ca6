"""Grammars are compiled where a crash, a hang or a bomb costs the request that brought them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfw.core.base.errors import ComponentError, GrammarCostError, OverloadedError, RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.grammars.messages import Launch, Limits
from llmfw.core.grammars.prover import BackendFailureError, GrammarProver
from llmfw.core.plugin.registry import Entry
from llmfw.core.testing.grammar_case import small_tokenizer

ROOT = str(Path(__file__).parents[3])
LIMITS = Limits(deadline_s=1.5, memory_mb=64, max_slow=4)
LONG = "x" * LIMITS.quick_chars


def launch(path: str = "tests.doubles.hostile_grammar:HostileBackend", limits: Limits = LIMITS) -> Launch:
    tokenizer = small_tokenizer()
    return Launch(
        entry=dataclasses.asdict(Entry("grammar", "hostile", path, "tests", "llmfw-tests", "1")),
        options={},
        tokenizer=tokenizer.to_json(),
        eos_token_ids=tokenizer.eos_token_ids,
        special_tokens={},
        vocab_size=tokenizer.num_ids,
        limits=limits,
        import_path=(*sys.path, ROOT),
    )


class Rig:
    """A prover and its event loop."""

    def __init__(self, made: Launch | None = None) -> None:
        self.runner = asyncio.Runner()
        self.prover = GrammarProver(lambda: made or launch())

    def prove(self, source: str, tenant: str = "", kind: str = "regex") -> GrammarSpec:
        return self.runner.run(self.prover.prove(GrammarSpec(kind, source), tenant))

    def close(self) -> None:
        self.runner.run(self.prover.close())
        self.runner.close()


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    found.close()


def test_the_engine_gets_the_prepared_grammar(rig: Rig) -> None:
    found = rig.prove("ok 1")
    assert (found.kind, found.source) == ("prepared", "ok 1")
    assert found.num_bytes > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        ("crash", "grammar_too_complex", "SIGSEGV"),
        ("hang", "grammar_timeout", "longer than 1.5 s"),
        ("spin", "grammar_timeout", "longer than 1.5 s"),
        ("eat", "grammar_too_complex", "memory"),
        ("recurse", "grammar_too_complex", "nested too deeply"),
        ("mask", "grammar_too_complex", "choosing a token takes"),
    ],
)
def test_a_costly_grammar_is_refused_with_its_reason(rig: Rig, source: str, code: str, reason: str) -> None:
    with pytest.raises(GrammarCostError, match=reason) as caught:
        rig.prove(source)
    assert caught.value.code == code
    assert rig.prove("ok 2").source == "ok 2"


def test_backend_errors_reach_the_caller(rig: Rig) -> None:
    with pytest.raises(RequestError, match="refused after"):
        rig.prove("refuse")
    with pytest.raises(BackendFailureError, match="OSError: out of paper") as caught:
        rig.prove("raise")
    assert "hostile_grammar.py" in caught.value.detail


@pytest.mark.parametrize(
    ("fault", "where", "words"),
    [
        ("copy", "copy()", "OSError: no copy"),
        ("accept", "accept()", r"ValueError: not here \(token \d+: fill_masks\(\) allows it"),
        ("force", "accept()", r"ValueError: not here \(token 1000000: forced\(\) returned it"),
        ("empty", "fill_masks()", "it allows no token"),
        ("finish", "is_finished()", "an empty output counts as JSON"),
    ],
)
def test_a_backends_fault_is_its_own(rig: Rig, fault: str, where: str, words: str) -> None:
    with pytest.raises(BackendFailureError, match=words) as caught:
        rig.prove(f"fault {fault}", kind="json_schema")
    assert caught.value.where == where


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("finish", r"only the end may follow, but fill_masks\(\) allows token 0"),
        ("dead", r"only the end may follow, but fill_masks\(\) does not allow the end"),
    ],
)
@pytest.mark.parametrize("kind", ["regex", "ebnf"])
def test_a_grammar_finished_too_early_fails(rig: Rig, fault: str, words: str, kind: str) -> None:
    """The mask of its first token says that the output may go on, or that it cannot end."""
    with pytest.raises(BackendFailureError, match=words) as caught:
        rig.prove(f"fault {fault}", kind=kind)
    assert caught.value.where == "is_finished()"
    assert rig.prove("fault end", kind=kind)


def test_an_empty_choice_fails(rig: Rig) -> None:
    source = '{"format": {"type": "const_string", "value": "yes"}}'
    with pytest.raises(BackendFailureError, match="the grammar requires text"):
        rig.prove(source, kind="structural_tag")


def test_slow_grammars_delay_no_other_tenant(rig: Rig) -> None:
    async def attack() -> int:
        bombs = [
            asyncio.create_task(rig.prover.prove(GrammarSpec("regex", f"spin {i}"), "a")) for i in range(4)
        ]
        await asyncio.sleep(0.2)
        for i in range(10):
            await rig.prover.prove(GrammarSpec("regex", f"ok b{i}"), "b")
        num_left = sum(not bomb.done() for bomb in bombs)
        for bomb in bombs:
            bomb.cancel()
        await asyncio.gather(*bombs, return_exceptions=True)
        return num_left

    assert rig.runner.run(attack()) >= 2
    assert rig.prove(f"ok {LONG}").source.startswith("ok")  # those without a waiting client are gone


def test_too_many_slow_grammars_are_refused_as_overload(rig: Rig) -> None:
    async def flood() -> list[object]:
        jobs = [rig.prover.prove(GrammarSpec("regex", f"slow {i} {LONG}")) for i in range(12)]
        return list(await asyncio.gather(*jobs, return_exceptions=True))

    found = rig.runner.run(flood())
    refused = [error for error in found if isinstance(error, OverloadedError)]
    assert 0 < len(refused) < 12


def test_a_killed_supervisor_is_replaced(rig: Rig) -> None:
    rig.prove("ok 3")
    before = rig.prover.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    assert rig.prove("ok 4").source == "ok 4"
    assert rig.prover.pid not in (None, before)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM])
def test_signals_leave_supervisor_and_children_running(rig: Rig, number: int) -> None:
    rig.prove("ok 5")
    before = rig.prover.pid
    assert before is not None
    children = Path(f"/proc/{before}/task/{before}/children").read_text().split()
    for pid in (before, *map(int, children)):
        os.kill(pid, number)
    assert rig.prove(f"ok {number}").source == f"ok {number}"
    assert rig.prover.pid == before
    assert set(children) <= set(Path(f"/proc/{before}/task/{before}/children").read_text().split())


def test_stopped_children_end_with_the_supervisor(rig: Rig) -> None:
    rig.prove("ok 6")
    supervisor = rig.prover.pid
    assert supervisor is not None
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    assert children
    for pid in map(int, children):
        os.kill(pid, signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while any(state(pid) != "Z" for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert rig.prove("ok 7").source == "ok 7"


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_an_unbuildable_backend_is_named() -> None:
    rig = Rig(launch("tests.doubles.hostile_grammar:NoSuchClass"))
    try:
        with pytest.raises(ComponentError, match=r"hostile.*NoSuchClass"):
            rig.prove("ok")
    finally:
        rig.close()


@pytest.mark.long
def test_a_stopped_supervisor_is_replaced(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.core.grammars.prover.PING_S", 0.05)
    monkeypatch.setattr("llmfw.core.grammars.prover.SILENT_S", 0.5)
    rig.prove("ok 5")
    stopped = rig.prover.pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    assert rig.prove("ok 6").source == "ok 6"
    assert rig.prover.pid != stopped
