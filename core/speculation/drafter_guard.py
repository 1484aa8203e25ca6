"""What a drafter does wrong costs no request: it is found here, told once, and the drafter is not asked again.

A drafter comes from a plugin. Where it raises, or drafts what is no token, generation goes on without drafts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import TypeVar

from ..config import OptionValue
from ..drafter import Drafter, SequenceDrafter
from ..isolation.calls import PartCalls
from ..registry import Registry

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class WrongDraftError(Exception):
    """A drafter answered with something else than tokens."""


class GuardedDrafter:
    """A drafter whose drafts are tokens.

    Args:
        drafter: is asked as long as it answers right.
        vocab_size: tokens are 0 to `vocab_size` - 1.
        who: is to blame, in words: name, plugin, package and version.
        calls: of the part, where they are counted.

    Attributes:
        failure: what the drafter did, if it is not asked any more; None: it is.
    """

    def __init__(
        self, drafter: Drafter, vocab_size: int, who: str = "under test", calls: PartCalls | None = None
    ) -> None:
        self.failure: str | None = None
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._who = who
        self._calls = calls

    def begin(self) -> SequenceDrafter | None:
        """Return what drafts for one more sequence; None: the drafter has failed."""

        def ask() -> SequenceDrafter:
            found = self._drafter.begin()
            if not isinstance(found, SequenceDrafter):
                raise WrongDraftError(f"begin() returned a {type(found).__name__}, not a SequenceDrafter")
            return found

        return self._asked(ask)

    def draft(self, sequence: SequenceDrafter, new: list[int], limit: int) -> list[int]:
        """Return what a sequence's drafter drafts after it has taken in new tokens; nothing once a drafter has failed.

        Args:
            sequence: the drafter's.
            new: tokens that it has not seen yet.
            limit: most drafted tokens.
        """

        def ask() -> list[int]:
            if new:
                sequence.extend(new)
            return check_draft(sequence.draft(limit), limit, self._vocab_size)

        return self._asked(ask) or []

    def _asked(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        """Return the answer; None if there is no right one."""
        if self.failure is not None:
            return None
        try:
            return ask() if self._calls is None else self._calls.timed(ask)
        except (Exception, SystemExit) as error:  # whatever a foreign drafter raises is what to tell
            if self._calls is not None:
                self._calls.failures += 1
            is_answer = isinstance(error, WrongDraftError)
            self.failure = str(error) if is_answer else f"{type(error).__name__}: {error}"
            logger.exception(
                "%s failed and is not asked any more: %s. Generation goes on without drafts",
                *(self._who, self.failure),
            )
            return None


def load_drafter(
    registry: Registry, name: str, options: Mapping[str, OptionValue], vocab_size: int
) -> GuardedDrafter:
    """Build the drafter of a name.

    Args:
        registry: where it is looked for.
        name: "name" or "plugin/name".
        options: by "drafter.key"; those of other kinds of parts are left alone.
        vocab_size: of the model.

    Raises:
        ConfigError: there is none of that name, or it does not have such an option or value.
        PartError: it cannot be imported or built.
    """
    entry = registry.find("drafter", name)
    drafter: Drafter = entry.build(entry.load(), entry.build_options(options))
    return GuardedDrafter(drafter, vocab_size, str(entry), registry.ledger.of(entry))


def check_draft(found: Sequence[int], limit: int, vocab_size: int) -> list[int]:
    """Return a draft as the engine needs it, or raise WrongDraftError."""
    try:
        tokens = [index(token) for token in found]
    except TypeError:
        raise WrongDraftError(f"draft() returned {found!r:.80}, not token ids") from None
    if len(tokens) > limit:
        raise WrongDraftError(f"draft() returned {len(tokens)} tokens where at most {limit} were asked for")
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        wrong = min(tokens) if min(tokens) < 0 else max(tokens)
        raise WrongDraftError(f"draft() returned the token {wrong}, which is none of 0 to {vocab_size - 1}")
    return tokens
