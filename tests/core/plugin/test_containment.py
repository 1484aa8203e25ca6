"""Whatever a plugin raises is its own failure; what ends the process is not."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from llmfw.core.base.errors import ComponentFailedError, CrashingRequestError, EngineDeadError
from llmfw.core.plugin.asking import Asked
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.containment import ProcessEnd, contained
from llmfw.core.plugin.registry import Entry

POLICY = Entry("policy", "bad", "ext.policy:Bad", "ext", "llmfw-ext", "1.2")


class PanicException(BaseException):
    """Like a panic in an extension written in Rust, which is no Exception."""


def failing(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error", [PanicException("x"), asyncio.CancelledError(), GeneratorExit(), SystemExit(1)]
)
def test_a_panic_is_a_failed_call(error: BaseException) -> None:
    with pytest.raises(ComponentFailedError):
        ComponentCalls(POLICY).call(failing, error)
    asked = Asked("policy 'bad'", "fcfs replaces it")
    assert asked.answer(lambda: failing(error)) is None
    assert asked.failure is not None


def contrived(method: str, raised: BaseException) -> BaseException:
    """Return an exception with a method or property that raises."""

    def fail(self: object) -> None:
        raise raised

    made: BaseException = type(
        "ContrivedError", (Exception,), {method: property(fail) if method == "__class__" else fail}
    )()
    return made


@pytest.mark.parametrize("raised", [SystemExit(1), KeyboardInterrupt(), ValueError()])
@pytest.mark.parametrize("method", ["__str__", "__bool__", "__class__"])
def test_contrived_exceptions_are_failed_calls(method: str, raised: BaseException) -> None:
    previous = signal.signal(signal.SIGINT, lambda *_: None)  # as a server does
    try:
        error = contrived(method, raised)
        with pytest.raises(ComponentFailedError, match="policy 'bad'") as caught:
            ComponentCalls(POLICY).call(failing, error)
        assert bool(caught.value.__cause__)
        with pytest.raises(ComponentFailedError, match="policy 'bad'"):
            ComponentCalls(POLICY).watched(failing)(error)
        asked = Asked("policy 'bad'", "fcfs replaces it")
        assert asked.answer(lambda: failing(error)) is None
        assert str(asked.failure).startswith(("ContrivedError", "RuntimeError: ContrivedError"))
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.mark.parametrize("error", [EngineDeadError("x"), CrashingRequestError("x")])
def test_components_cannot_end_the_engine(error: BaseException) -> None:
    """The client would take it for the end of the process, and run the request again."""
    with pytest.raises(ComponentFailedError):
        ComponentCalls(POLICY).call(failing, error)


@pytest.mark.parametrize("error", [ProcessEnd(0), KeyboardInterrupt()])
def test_a_signal_during_a_call_ends_the_process(error: BaseException) -> None:
    with pytest.raises(type(error)):
        ComponentCalls(POLICY).call(failing, error)
    asked = Asked("policy 'bad'", "fcfs replaces it")
    with pytest.raises(type(error)):
        asked.answer(lambda: failing(error))
    assert asked.failure is None


async def test_a_cancelled_request_is_no_failure() -> None:
    calls = ComponentCalls(POLICY)
    task = asyncio.create_task(calls.wait(asyncio.sleep, 60))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert calls.failures == 0


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit()])
async def test_an_end_that_nobody_wanted_is_a_failure(error: BaseException) -> None:
    async def ended() -> None:
        raise error

    async def ended_items() -> AsyncIterator[int]:
        raise error
        yield 1

    with pytest.raises(ComponentFailedError):
        await ComponentCalls(POLICY).wait(ended)
    with pytest.raises(ComponentFailedError):
        await anext(ComponentCalls(POLICY).iterate(ended_items))


def test_a_closed_call_is_no_failure() -> None:
    class Never:
        def __await__(self) -> Iterator[None]:
            yield

    calls = ComponentCalls(POLICY)
    call = calls.wait(Never)
    call.send(None)
    call.close()
    assert calls.failures == 0


def test_a_contained_panic_keeps_its_traceback() -> None:
    error: BaseException = PanicException("x")
    with contextlib.suppress(PanicException):
        failing(error)
    found = contained(error)
    assert str(found) == "PanicException: x"
    assert found.__traceback__ is error.__traceback__


def test_a_servers_keyboard_interrupt_is_the_plugins() -> None:
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with pytest.raises(ComponentFailedError):
            ComponentCalls(POLICY).call(failing, KeyboardInterrupt())
    finally:
        signal.signal(signal.SIGINT, before)
