"""Queues prompts to be embedded. Tenants take turns, and the requests of a tenant take turns.

A request may have thousands of prompts. In order of arrival, the next client's single prompt would wait for
all these prompts. Limits and batches are decided in `embed_queue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TypeVar

from llmfw.core.base.request import EmbedRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting prompt of a request.

    Attributes:
        request: request that the prompt belongs to.
        index: index of the prompt in `request.prompts`.
    """

    request: EmbedRequest
    index: int

    @property
    def prompt(self) -> list[int]:
        """Token ids of the prompt."""
        return self.request.prompts[self.index]

    @property
    def types(self) -> Sequence[int]:
        """Types of the prompt's tokens; empty: all 0."""
        return self.request.type_ids[self.index] if self.request.type_ids else ()


class EmbedLane:
    """Waiting prompts of one class of requests: live or deferrable (see `deferral`)."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, dict[int, Waiting]]] = {}
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def add(self, request: EmbedRequest) -> None:
        """Add all prompts of a request, after the other requests of the same tenant."""
        prompts = {index: Waiting(request, index) for index in range(len(request.prompts))}
        self._tenants.setdefault(request.tenant, {})[request.id] = prompts
        self._num += len(prompts)

    def remove(self, request: EmbedRequest) -> None:
        """Remove a request and its waiting prompts."""
        requests = self._tenants.get(request.tenant, {})
        self._num -= len(requests.pop(request.id, {}))
        if not requests:
            self._tenants.pop(request.tenant, None)

    def window(self, num_tokens: int) -> list[Waiting]:
        """Return the next prompts, one from each request in turn, until they have `num_tokens` tokens."""
        return list(_up_to(num_tokens, _in_turns([each.values() for each in self._requests()])))

    def take(self, batch: Iterable[Waiting]) -> None:
        """Remove prompts, and move their tenants and requests to the ends of their queues."""
        for each in batch:
            tenant, request = each.request.tenant, each.request.id
            requests = self._tenants.pop(tenant)
            prompts = requests.pop(request)
            del prompts[each.index]
            self._num -= 1
            if prompts:
                requests[request] = prompts
            if requests:
                self._tenants[tenant] = requests

    def _requests(self) -> list[dict[int, Waiting]]:
        return list(_in_turns([requests.values() for requests in self._tenants.values()]))


def _in_turns(groups: Sequence[Iterable[T]]) -> Iterator[T]:
    """Yield the first item of each group, then the second of each, and so on."""
    return (each for each in chain.from_iterable(zip_longest(*groups)) if each is not None)


def _up_to(num_tokens: int, waiting: Iterable[Waiting]) -> Iterator[Waiting]:
    for each in waiting:
        yield each
        num_tokens -= len(each.prompt)
        if num_tokens <= 0:
            return
