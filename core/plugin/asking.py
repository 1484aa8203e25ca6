"""Calls a component until it first fails; then logs the failure, and never calls the component again.

Independent of the component's kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from llmfw.core.base.described import described
from llmfw.core.base.disarm import readable

from .calls import ComponentCalls
from .containment import raise_if_process_ends

logger = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class WrongAnswerError(Exception):
    """A component returned an invalid answer; the message describes it."""


class Asked:
    """A component that is called until it first fails.

    Args:
        who: description of the component for the log, with its plugin, package and version.
        instead: sentence for the log that states what replaces the component after a failure.
        calls: records the component's calls; None: calls are not recorded.

    Attributes:
        failure: description of the failure; None: the component has not failed.
    """

    def __init__(self, who: str, instead: str, calls: ComponentCalls | None = None) -> None:
        self.failure: str | None = None
        self._who = who
        self._instead = instead
        self._calls = calls

    def answer(self, ask: Callable[[], AnswerT]) -> AnswerT | None:
        """Call the component; return its answer, or None if the component fails or has failed before.

        Args:
            ask: function that calls the component and returns its answer. It raises WrongAnswerError for an
                invalid answer.
        """
        if self.failure is not None:
            return None
        try:
            return ask() if self._calls is None else self._calls.timed(ask)
        except BaseException as error:  # a plugin may raise anything; it is logged
            raise_if_process_ends(error)
            if self._calls is not None:
                self._calls.failures += 1
            is_answer = issubclass(type(error), WrongAnswerError)
            self.failure = str(error) if is_answer else described(error)
            logger.error(
                "%s failed and is no longer used: %s. %s",
                *(self._who, self.failure, self._instead),
                exc_info=readable(error),
            )
            return None
