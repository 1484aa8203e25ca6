"""Says which models of a server can be used now. Does not depend on HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from llmfw.api.text.by_model import ByModel
from llmfw.core.base.errors import EngineDeadError, EngineError, EngineRestartingError, NotReadyError
from llmfw.core.client.client import EngineClient


class MayFail(Protocol):
    """An engine client, or a service with one."""

    @property
    def failure(self) -> str | None:
        """The reason why the engine has ended for good, or None."""


MayFailT = TypeVar("MayFailT", bound=MayFail)


def not_failed(found: Iterable[MayFailT]) -> list[MayFailT]:
    """Return those whose engines have not ended for good; all, if none are left, so that a command raises the reason."""
    all_of_them = list(found)
    return [each for each in all_of_them if each.failure is None] or all_of_them


def reason_against(client: EngineClient) -> EngineError | None:
    """Return why an engine cannot serve now; None if it can."""
    if client.failure is not None:
        return EngineDeadError(client.failure)
    return EngineRestartingError(client.outage) if client.outage is not None else None


def reason_against_requests(client: EngineClient) -> EngineError | NotReadyError | None:
    """Return why an engine takes no new requests now; None if it does. An engine that sleeps takes none."""
    return client.refusal or reason_against(client)


class UsableModels:
    """The models of a server, any of which may fail alone.

    Args:
        clients: clients of the models' engines.
    """

    def __init__(self, clients: ByModel[EngineClient]) -> None:
        self._clients = clients

    def chosen(self, model: str | None) -> dict[str, EngineClient]:
        """Return served name → client: of one model, or of all if the name is None.

        Raises:
            ModelNotFoundError: there is no such model.
        """
        if model is not None:
            return {self._clients.names_of(model).served_name: self._clients.of(model)}
        return dict(zip(self._clients.served_names, self._clients, strict=True))

    def report(self, reasons: dict[str, Exception | None]) -> dict[str, str]:
        """Return the reply of a check of models: how many of several pass, and why the others do not.

        Args:
            reasons: served name of each checked model → why it does not pass; None: it passes.

        Raises:
            Exception: the reason of the first model, if none passes.
        """
        failed = {name: reason for name, reason in reasons.items() if reason is not None}
        if len(failed) == len(reasons):
            raise next(iter(failed.values()))
        if len(reasons) == 1:
            return {"status": "ok"}
        usable = f"{len(reasons) - len(failed)} of {len(reasons)}"
        found = {"status": "degraded" if failed else "ok", "models": usable}
        if failed:
            said = {name: getattr(reason, "detail", reason) for name, reason in failed.items()}
            found["unavailable"] = "; ".join(f"{name}: {text}" for name, text in said.items())
        return found
