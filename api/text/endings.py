"""The stop string, pattern or token that ended a choice.

SGLang reports it as `matched_stop`, vLLM as `stop_reason`.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from .choice import Choice

Match = int | str | None


class Ending(msgspec.Struct, frozen=True):
    """The stop that ended a choice. The fields are UNSET while the choice runs.

    Attributes:
        matched_stop: stop string, pattern of `stop_regex`, or id of the token that ended the choice; None:
            its length or a tool call ended the choice.
        stop_reason: `matched_stop`, except that it is None if an end-of-sequence token of the model ended the
            choice.
    """

    matched_stop: Match | UnsetType = UNSET
    stop_reason: Match | UnsetType = UNSET


def ending_of(choice: Choice, *, is_counted: bool = True) -> Ending:
    """Return the stop that ended a choice.

    Args:
        is_counted: whether the choice's generated tokens are part of the reply. If not, no stop is reported.
    """
    if choice.text.finish_reason is None:
        return Ending()
    match = choice.text.stopped_by if is_counted else None
    return Ending(match, None if match in choice.request.eos_token_ids else match)
