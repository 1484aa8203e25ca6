"""What the double of the engine answers to an administrator: it keeps what it is told, and does nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.control import (
    AdapterCommand,
    AdapterInfo,
    AdapterList,
    Answer,
    CacheView,
    Command,
    GetPolicy,
    GetTrace,
    ListAdapters,
    LoadAdapter,
    PinInfo,
    PinPrefix,
    PolicyInfo,
    PrefixInfo,
    RequestTrace,
    SetPolicy,
    TraceEntry,
    UnloadAdapter,
    UnpinPrefix,
)
from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.base.request import Request

POLICIES = ("fcfs", "lpm")
BREAK_POLICY = "breaks"  # putting it in force fails in a way that nobody expects


class EchoAdministration:
    """Answers commands.

    Args:
        requests: that the engine has accepted.

    Attributes:
        commands: all that came.
        prefixes: that the cache is said to hold.
    """

    def __init__(self, requests: Sequence[Request]) -> None:
        self.commands: list[Command] = []
        self.prefixes: list[PrefixInfo] = []
        self._requests = requests
        self._policy = PolicyInfo("fcfs", {}, None, list(POLICIES))
        self._pins: dict[str, PinInfo] = {}
        self._adapters: dict[str, AdapterInfo] = {}

    def answer(self, command: Command) -> Answer:
        self.commands.append(command)
        match command:
            case GetPolicy():
                return self._policy
            case SetPolicy():
                return self._set_policy(command)
            case PinPrefix():
                pin = PinInfo(f"pin-{len(self._pins)}", len(command.token_ids), 0, command.ttl_s)
                self._pins[pin.id] = pin
                return pin
            case UnpinPrefix():
                if command.id not in self._pins:
                    raise NotFoundError(f"there is no pin {command.id!r}", param="id")
                return self._pins.pop(command.id)
            case GetTrace():
                return self._trace(command.id)
            case ListAdapters() | LoadAdapter() | UnloadAdapter():
                return self._change_adapters(command)
        return CacheView(9, 4, 4, 2, 0, 3, 12, "lru", self.prefixes, list(self._pins.values()))

    def _change_adapters(self, command: AdapterCommand) -> AdapterList:
        if isinstance(command, LoadAdapter):
            version = 1 + len(self._adapters)
            self._adapters[command.name] = AdapterInfo(command.name, command.path, version, "ready")
        elif isinstance(command, UnloadAdapter):
            self._adapters.pop(command.name, None)
        return AdapterList(list(self._adapters.values()), 4, 16)

    def _set_policy(self, command: SetPolicy) -> PolicyInfo:
        if command.name == BREAK_POLICY:
            raise ZeroDivisionError("a defect of the policy")
        if command.name not in POLICIES:
            raise RequestError(
                f"unknown policy {command.name!r}; known: {', '.join(POLICIES)}", param="name", code="unknown"
            )
        self._policy = PolicyInfo(command.name, command.options, None, list(POLICIES))
        return self._policy

    def _trace(self, request_id: str) -> RequestTrace:
        for request in self._requests:
            if request.id == request_id:
                return RequestTrace(request_id, 0.0, len(request.prompt), [TraceEntry("arrived", 0.0)])
        raise NotFoundError(f"nothing is known of a request {request_id!r}", param="id")
