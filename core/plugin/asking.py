"""Asks a part until it fails once: that is told, and then the part is not asked again. Knows no kind of part."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from .calls import PartCalls

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class WrongAnswerError(Exception):
    """A part answered with something else than what it was asked for; the message says with what."""


class Asked:
    """A part that is asked as long as it answers right.

    Args:
        who: is to blame, in words: the part, its plugin, package and version.
        instead: what is done once it has failed, as a sentence.
        calls: of the part, where they are counted.

    Attributes:
        failure: what the part did, if it is not asked any more; None: it is.
    """

    def __init__(self, who: str, instead: str, calls: PartCalls | None = None) -> None:
        self.failure: str | None = None
        self._who = who
        self._instead = instead
        self._calls = calls

    def answer(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        """Return what `ask` gives; None if it raises (WrongAnswerError: an answer of the wrong kind), now or before."""
        if self.failure is not None:
            return None
        try:
            return ask() if self._calls is None else self._calls.timed(ask)
        except (Exception, SystemExit) as error:  # whatever a foreign part raises is what to tell
            if self._calls is not None:
                self._calls.failures += 1
            is_answer = isinstance(error, WrongAnswerError)
            self.failure = str(error) if is_answer else f"{type(error).__name__}: {error}"
            logger.exception(
                "%s failed and is not asked any more: %s. %s", *(self._who, self.failure, self._instead)
            )
            return None
