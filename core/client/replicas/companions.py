"""Keeps all choices of a prompt in one client's request on one engine, which computes the prompt once."""

from __future__ import annotations

from llmfw.core.base.request import EmbedRequest, Request

from ..whole_request import WholeRequest, open_whole_request
from .replica import Replica


class Companions:
    """Remembers the engine of each prompt in the client requests that are being answered.

    All choices of a prompt share one list of token ids. Equal prompts in one client's request have separate
    lists.
    """

    def __init__(self) -> None:
        self._found: dict[WholeRequest, dict[int, tuple[list[int], Replica]]] = {}

    def replica_of(self, request: Request | EmbedRequest) -> Replica | None:
        """Return the engine that last got another choice of the prompt, or None."""
        whole = open_whole_request()
        if whole is None or whole not in self._found or isinstance(request, EmbedRequest):
            return None
        known = self._found[whole].get(id(request.prompt))
        return None if known is None else known[1]

    def note(self, request: Request | EmbedRequest, replica: Replica) -> None:
        """Remember the engine of a prompt until the client's request has been answered."""
        whole = open_whole_request()
        if whole is None or isinstance(request, EmbedRequest):
            return
        if whole not in self._found:
            self._found[whole] = {}
            whole.at_end(lambda: self._forget(whole))
        # The list is kept so that no other list gets the same id.
        self._found[whole][id(request.prompt)] = (request.prompt, replica)

    def _forget(self, whole: WholeRequest) -> None:
        del self._found[whole]
