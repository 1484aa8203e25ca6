"""Calls a component until its first fault, logs it, and never calls the component again. Knows no kinds."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from .calls import ComponentCalls

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class WrongAnswerError(Exception):
    """A component returned an invalid answer; the message describes it."""


class Asked:
    """A component that is called until its first fault.

    Args:
        who: description of the component for the log: the component, its plugin, package and version.
        instead: sentence that says what replaces the component once it has failed.
        calls: record of the component's calls; None: none is kept.

    Attributes:
        failure: the component's fault, if it has failed; None: it is in use.
    """

    def __init__(self, who: str, instead: str, calls: ComponentCalls | None = None) -> None:
        self.failure: str | None = None
        self._who = who
        self._instead = instead
        self._calls = calls

    def answer(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        """Return the result of `ask`; None if it raises, or has raised before. Invalid answers raise WrongAnswerError."""
        if self.failure is not None:
            return None
        try:
            return ask() if self._calls is None else self._calls.timed(ask)
        except (Exception, SystemExit) as error:  # whatever a foreign component raises is the fault to log
            if self._calls is not None:
                self._calls.failures += 1
            is_answer = isinstance(error, WrongAnswerError)
            self.failure = str(error) if is_answer else f"{type(error).__name__}: {error}"
            logger.exception(
                "%s failed and is no longer used: %s. %s", *(self._who, self.failure, self._instead)
            )
            return None
