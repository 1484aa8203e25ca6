"""Shortens a conversation that is too long to its newest part, for `truncation: "auto"`.

Whole turns are left out first, starting with the oldest; a turn is a user's message and all items up to the next one. The
user's message of the last turn stays; its model and tool items are left out, starting with the oldest. Messages of the
system and the developer stay. A call is never separated from its output. Knows nothing of tokens.
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
    """Return the result of `make` for the longest newest part of a conversation that fits.

    Args:
        make: raises ContextLengthError for items that do not fit, and RequestError for items that the template refuses;
            such parts are skipped.
        has_room: whether the result leaves enough room for an answer. If no part leaves enough, the shortest part that
            fits is used.

    Raises:
        RequestError: no part fits; the error that `make` raises for the whole conversation.
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
    low, high = (
        0,
        len(shorter),
    )  # those before `low` are too long; at `high` there is one with room, if not at the end
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
    """Return the places up to which a conversation can be shortened, in order."""
    users = [i for i, item in enumerate(items) if _role(item) == "user"]
    last = users[-1] if users else -1
    whole = _outside_calls(items)
    turns = [i for i in users[1:] if i in whole]
    rest = [
        i for i in range(max(last, 0) + 1, len(items)) if i in whole and items[i - 1]["type"] != "reasoning"
    ]
    return turns + rest


def without(items: Sequence[Item], cut: int) -> list[Item]:
    """Return a conversation without the items that are left out before a place."""
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
    """Return the places before which no call waits for its output. Each output has a call before it."""
    calls = {
        item["call_id"]: i for i, item in reversed(list(enumerate(items))) if item["type"] == "function_call"
    }
    last_output = {
        item["call_id"]: i for i, item in enumerate(items) if item["type"] == "function_call_output"
    }
    change = [0] * (len(items) + 1)  # of how many calls wait
    for call_id, end in last_output.items():
        change[calls[call_id] + 1] += 1
        change[end + 1] -= 1
    waiting = list(accumulate(change))
    return {i for i in range(len(items)) if not waiting[i]}
