"""What ended a choice, under SGLang's name (`matched_stop`) and under vLLM's (`stop_reason`)."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from .generation import Choice

Match = int | str | None


class Ending(msgspec.Struct, frozen=True):
    """What ended a choice; UNSET while it runs.

    Attributes:
        matched_stop: the stop string, the pattern of `stop_regex` or the id of the token that ended it, including
            end-of-sequence tokens; None: its length or a tool call ended it.
        stop_reason: the same, but None for the model's own end-of-sequence tokens.
    """

    matched_stop: Match | UnsetType = UNSET
    stop_reason: Match | UnsetType = UNSET


def ending_of(choice: Choice, *, is_counted: bool = True) -> Ending:
    """Return what ended a choice.

    Args:
        is_counted: whether the choice's own tokens are part of the reply; if not, nothing matched.
    """
    if choice.text.finish_reason is None:
        return Ending()
    match = choice.text.stopped_by if is_counted else None
    return Ending(match, None if match in choice.request.eos_token_ids else match)
