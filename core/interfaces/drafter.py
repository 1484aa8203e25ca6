"""The interface of a drafter, which cheaply guesses the next tokens of a sequence.

The model computes all drafted tokens in one step. The engine accepts the drafted tokens that it would also
have sampled one by one. So drafts change how many tokens a step adds, but never which tokens. See
docs/speculation.md.

A faulty drafter fails no request: if a drafter raises, or drafts an invalid token, llmfw logs that once with
the name of the plugin, and generation continues without the drafter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class DraftedRequest:
    """The request of a sequence, as a drafter may know it.

    Attributes:
        tenant: API key or user that the request belongs to; "" if it has neither.
        tenant_is_key: whether the tenant is an API key. If False, it is a user that the client names.
        cache_salt: only requests with the same salt may share data.
        fields: values of request fields of plugins, by name (see `RequestField`).
    """

    tenant: str
    tenant_is_key: bool
    cache_salt: str
    fields: Mapping[str, Any]


class SequenceDrafter(ABC):
    """Drafts tokens for one sequence, from the start of its request to the end."""

    @abstractmethod
    def extend(self, token_ids: Sequence[int]) -> None:
        """Append tokens to the sequence.

        The first call passes the prompt. Each later call passes the tokens that were generated since the
        previous call.
        """

    @abstractmethod
    def draft(self, limit: int) -> Sequence[int]:
        """Return at most `limit` guessed next tokens, in order; none if there is no good guess.

        Must not change the drafter's state. Each step that may compute drafts waits for this call, so its
        duration must not grow with the length of the sequence. `limit` is 1 or more.
        """


class Drafter(ABC):
    """Creates a `SequenceDrafter` for each sequence. The engine builds one drafter when it starts."""

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o drafter.key=value`. A drafter with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def begin(self) -> SequenceDrafter:
        """Return a drafter for a new sequence.

        The drafter may use only the tokens of that sequence, because requests share no data.
        """

    def begin_for(self, request: DraftedRequest) -> SequenceDrafter:
        """Return a drafter for the sequence of a request. The engine calls this; by default, calls `begin`.

        A drafter overrides this if it needs to know the request. A drafter that keeps data of one sequence
        for other sequences may use the data only for requests with the same tenant and the same cache salt.
        """
        return self.begin()
