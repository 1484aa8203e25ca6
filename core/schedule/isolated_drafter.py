"""Keeps a faulty drafter from failing requests: logs its first fault, and does not call the drafter again.

A drafter comes from a plugin. If it raises, or drafts an invalid token, generation continues without drafts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from itertools import islice
from operator import index

from llmfw.core.base.request import Request
from llmfw.core.interfaces.declared_fields import DeclaredFields
from llmfw.core.interfaces.drafter import DraftedRequest, Drafter, SequenceDrafter
from llmfw.core.plugin.asking import Asked, WrongAnswerError
from llmfw.core.plugin.calls import ComponentCalls


class IsolatedDrafter:
    """Wraps a drafter so that its drafts are always valid, and empty after its first fault.

    Args:
        drafter: drafter, called until its first fault.
        vocab_size: size of the vocabulary; valid tokens are 0 to `vocab_size` - 1.
        who: description of the drafter for the log: name, plugin, package and version.
        calls: record of the component's calls; None: calls are not recorded.
        declared: names of the request fields that the drafter may ask for; None: any.
    """

    def __init__(
        self,
        drafter: Drafter,
        vocab_size: int,
        who: str = "under test",
        calls: ComponentCalls | None = None,
        declared: Collection[str] | None = None,
    ) -> None:
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._declared = declared
        self._asked = Asked(who, "Generation goes on without drafts", calls)

    @property
    def failure(self) -> str | None:
        """Description of the drafter's first fault; None if it has not failed."""
        return self._asked.failure

    def begin(self, request: Request) -> SequenceDrafter | None:
        """Return a drafter for the sequence of a request; None if the drafter has failed."""

        def ask() -> SequenceDrafter:
            found = self._drafter.begin_for(_known_of(request, self._declared))
            if not isinstance(found, SequenceDrafter):
                raise WrongAnswerError(f"begin() returned a {type(found).__name__}, not a SequenceDrafter")
            return found

        return self._asked.answer(ask)

    def draft(self, sequence: SequenceDrafter, new: list[int], limit: int) -> list[int]:
        """Pass a sequence's new tokens to its drafter, and return a draft; [] if the drafter has failed.

        Args:
            sequence: drafter of the sequence, from `begin`.
            new: tokens that the drafter has not seen yet.
            limit: maximum number of drafted tokens.
        """

        def ask() -> list[int]:
            if new:
                sequence.extend(new)
            return check_draft(sequence.draft(limit), limit, self._vocab_size)

        return self._asked.answer(ask) or []


def _known_of(request: Request, declared: Collection[str] | None) -> DraftedRequest:
    return DraftedRequest(
        tenant=request.tenant,
        tenant_is_key=request.tenant_is_key,
        cache_salt=request.cache_salt,
        fields=request.fields if declared is None else DeclaredFields(request.fields, declared),
    )


def check_draft(found: Sequence[int], limit: int, vocab_size: int) -> list[int]:
    """Return a drafter's answer as a list of valid token ids.

    Reads at most `limit` + 1 tokens, since an iterator may be endless.

    Raises:
        WrongAnswerError: the answer is too long or holds something other than valid token ids.
    """
    try:
        tokens = [index(token) for token in islice(found, limit + 1)]
    except TypeError:
        raise WrongAnswerError(f"draft() returned {found!r:.80}, not token ids") from None
    if len(tokens) > limit:
        count = len(found) if isinstance(found, Sized) else f"more than {limit}"
        raise WrongAnswerError(f"draft() returned {count} tokens where at most {limit} were asked for")
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        wrong = min(tokens) if min(tokens) < 0 else max(tokens)
        raise WrongAnswerError(f"draft() returned the token {wrong}, which is not from 0 to {vocab_size - 1}")
    return tokens
