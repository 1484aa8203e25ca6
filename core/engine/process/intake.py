"""Passes clients' messages to the engine.

Used in the engine process, and in the thread of an in-process engine.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from llmfw.core.base.control import (
    Answer,
    Command,
    GetMemory,
    LogLevelInfo,
    MemoryInfo,
    SetLogLevel,
    Sleep,
    Wake,
)
from llmfw.core.base.engine_info import ControlAnswer, EngineStats
from llmfw.core.base.errors import LLMFWError, RequestError
from llmfw.core.base.memory import resident_bytes
from llmfw.core.base.replica_commands import ReplicaCommand, one_engine
from llmfw.core.base.request import Abort, Control, EmbedRequest, ReportQuery, Request, ToEngine, TokenEvent
from llmfw.core.base.weights_command import LoadWeights
from llmfw.core.ipc.wire import failure_of

if TYPE_CHECKING:
    from .any_engine import AnyEngine

logger = logging.getLogger(__name__)


def take_in(engine: AnyEngine, message: ToEngine) -> TokenEvent | EngineStats | ControlAnswer | None:
    """Pass a message to the engine; return the immediate answer, or None if there is none.

    If the engine does not accept a request, the answer is the event that ends the request. Other requests
    continue.
    """
    if isinstance(message, Request | EmbedRequest):
        return _add(engine, message)
    if isinstance(message, Abort):
        for request_id in message.ids:
            engine.abort(request_id)
        return None
    if isinstance(message, Control):
        return _control(engine, message)
    if isinstance(message, ReportQuery):
        return None  # an engine without a process of its own makes no reports
    return engine.stats()


def _control(engine: AnyEngine, asked: Control) -> ControlAnswer:
    try:
        return ControlAnswer(asked.number, _carried_out(engine, asked.command))
    except Exception as error:  # a command must not end the engine
        if not isinstance(error, LLMFWError):
            logger.exception("%s failed", type(asked.command).__name__)
        return ControlAnswer(asked.number, failure=failure_of(error))


def _carried_out(engine: AnyEngine, command: Command) -> Answer:
    if isinstance(command, SetLogLevel):
        logging.getLogger().setLevel(command.level.upper())
        return LogLevelInfo(command.level)
    if isinstance(command, GetMemory):
        return MemoryInfo(resident_bytes(), _reserved_bytes())
    if isinstance(command, Sleep | Wake | LoadWeights):
        raise RequestError(
            "this engine has no process of its own that could end; use that of `llmfw serve`",
            code="unsupported_operation",
        )
    if isinstance(command, ReplicaCommand):
        raise one_engine()
    return engine.control(command)


def _reserved_bytes() -> int:
    """Return the GPU memory in bytes that PyTorch has reserved in this process; 0 if it uses no GPU."""
    torch = sys.modules.get("torch")  # engines of tests have none
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.memory_reserved())


def _add(engine: AnyEngine, request: Request | EmbedRequest) -> TokenEvent | None:
    try:
        _check_task(engine.info.task, request)
        engine.add(request)
    except Exception as error:  # a request must not end the engine
        if not isinstance(error, LLMFWError):
            logger.exception("request %s could not be added", request.id)
        return TokenEvent.failed(request.id, error)
    return None


def _check_task(task: str, request: Request | EmbedRequest) -> None:
    if (task != "generate") != isinstance(request, EmbedRequest):
        raise RequestError(f"this engine's task is {task!r}", code="unsupported_operation")
