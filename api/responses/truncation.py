"""Shortens a conversation that is too long to its newest part, for `truncation: "auto"`.

Drops the oldest turns first; a turn is a user message and all items up to the next one. In the last turn, the
user message stays, and the oldest items of the model and of tools are dropped. System and developer messages
always stay. A call is never separated from its output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import TypeVar

from llmfw.core.base.errors import ContextLengthError, RequestError

from .items import Item

MadeT = TypeVar("MadeT")


async def newest_that_fits(
    items: Sequence[Item],
    make: Callable[[Sequence[Item]], Awaitable[MadeT]],
    has_room: Callable[[MadeT], bool],
) -> MadeT:
    """Shorten a conversation until its prompt fits and leaves room for an answer; return `make`'s result.

    Returns the result for the longest version that leaves room. If no version does, returns the result for
    the shortest version that fits.

    Args:
        make: function that builds the prompt of a version. It raises ContextLengthError if the version is too
            long, and RequestError if the template refuses the version.
        has_room: function that returns whether a result of `make` leaves enough room for an answer.

    Raises:
        RequestError: no version fits, or the template refuses the whole conversation. The error is the one
            that `make` raised for the whole conversation.
    """
    too_long: RequestError | None = None
    roomy = tight = None
    try:
        tight = await make(items)
    except ContextLengthError as error:
        too_long = error
    if tight is not None and has_room(tight):
        return tight
    shorter = cuts(items)
    # No cut before `low` leaves room. The cut at `high`, if there is one, leaves room.
    low, high = 0, len(shorter)
    while low < high:
        middle = (low + high) // 2
        try:
            made = await make(without(items, shorter[middle]))
        except RequestError:
            low = middle + 1
            continue
        if has_room(made):
            roomy, high = made, middle
        else:
            tight, low = made, middle + 1
    found = roomy or tight
    if found is None:
        assert too_long is not None
        raise too_long
    return found


def cuts(items: Sequence[Item]) -> list[int]:
    """Return the indices before which a conversation can be cut, in ascending order."""
    users = [i for i, item in enumerate(items) if _role(item) == "user"]
    last = users[-1] if users else -1
    whole = _outside_calls(items)
    turns = [i for i in users[1:] if i in whole]
    rest = [
        i for i in range(max(last, 0) + 1, len(items)) if i in whole and items[i - 1]["type"] != "reasoning"
    ]
    return turns + rest


def without(items: Sequence[Item], cut: int) -> list[Item]:
    """Return a conversation shortened at index `cut`.

    Before the cut, only system and developer messages and the last user message are kept.
    """
    users = [i for i, item in enumerate(items) if _role(item) == "user"]
    kept = users[-1] if users else -1
    return [
        item
        for i, item in enumerate(items)
        if i >= cut or i == kept or _role(item) in ("system", "developer")
    ]


def _role(item: Item) -> str | None:
    return item["role"] if item["type"] == "message" else None


def _outside_calls(items: Sequence[Item]) -> set[int]:
    """Return the indices at which the conversation can be cut without separating a call from its output.

    Every output must have an earlier call.
    """
    calls = {
        item["call_id"]: i for i, item in reversed(list(enumerate(items))) if item["type"] == "function_call"
    }
    last_output = {
        item["call_id"]: i for i, item in enumerate(items) if item["type"] == "function_call_output"
    }
    change = [0] * (len(items) + 1)  # change of the number of calls without output, by index
    for call_id, end in last_output.items():
        change[calls[call_id] + 1] += 1
        change[end + 1] -= 1
    waiting = list(accumulate(change))
    return {i for i in range(len(items)) if not waiting[i]}
