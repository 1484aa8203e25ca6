"""Counts the cost of one rendering of a chat template, and ends a rendering that costs too much.

A template is untrusted code, and runs in the API process: nothing outside Python can stop it. So its loops, texts and
lists report to this class (`metered_code`, `metered_environment`, `filters`). If an operation multiplies, it reports
before memory is taken. Knows nothing of Jinja.

One unit is a step (a loop's turn, a call), or 256 copied characters. Units, not seconds, decide whether a rendering is
brief, so that the same chat is always rendered in the same place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import Any, TypeVar

import msgspec

from llmfw.core.base.errors import RequestError
from llmfw.core.base.memory import resident_bytes

ItemT = TypeVar("ItemT")

QUANTUM = 1000
"""Units between two checks of the clock."""

ITEM_WEIGHT = 8
"""Weight of a value in a list or object: the bytes of a reference. A text also weighs its characters."""

MAX_DEPTH = 500
"""Maximum nesting of lists: Python recurses on the C stack to hash or compare them."""

MAX_BITS = 65_536
"""Maximum bits of an integer: products of longer ones take long and cannot be interrupted."""

SMALL = 256
"""Characters or items below which single operations are not counted; the operations of a block are."""

MAX_PLAIN_INT = 2**64
_KEPT_WEIGHT = 512
_SCALARS = frozenset({int, float, bool, type(None)})
_SIZED = frozenset({list, tuple, str, dict})
_CONTAINERS: tuple[type, ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    Mapping,
)


class LimitError(Exception):
    """A rendering exceeds a limit. The message names the limit, and continues "the chat template"."""


class NotBriefError(RequestError):
    """A rendering that should be brief is not. `JinjaChatTemplate` catches it."""

    def __init__(self) -> None:
        super().__init__("the chat template takes too long to be rendered at once", param="messages")


class Limits(msgspec.Struct, frozen=True):
    """Limits of one rendering.

    Attributes:
        seconds: maximum time.
        steps: maximum number of units.
        text: maximum characters of one text, including the whole prompt, and maximum weight of one list or object.
        per_input: amount that each character of the input adds to `text`.
        memory: maximum bytes by which the process may grow.
        brief: units of a brief rendering, plus `brief_message` for each message, plus one for every 32 characters of
            input.
        brief_message: see `brief`.
    """

    seconds: float = 5.0
    steps: int = 20_000_000
    text: int = 1_048_576
    per_input: int = 8
    memory: int = 268_435_456
    brief: int = 20_000
    brief_message: int = 100


class Meter:
    """Counts the cost of the current rendering of one thread.

    Args:
        limits: limits of each rendering.
    """

    __slots__ = (
        "_base",
        "_brief",
        "_deadline",
        "_given",
        "_granted",
        "_input",
        "_left",
        "_trusted",
        "_used",
        "_weights",
        "limits",
    )

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._weights: dict[int, tuple[Any, int, int]] = {}
        self.begin(())

    def begin(self, given: Iterable[Any], *, brief: bool = False, num_messages: int = 0) -> None:
        """Start counting.

        Args:
            given: all values from the client.
            brief: whether to raise NotBriefError as soon as the rendering is not brief.
        """
        limits = self.limits
        self._given = tuple(given)
        self._input = self._base = -1
        self._used = 0
        self._trusted: set[int] = set()
        self._brief = limits.brief + limits.brief_message * num_messages if brief else limits.steps
        self._left = self._granted = QUANTUM
        self._deadline = monotonic() + limits.seconds

    def end(self) -> None:
        """Drop references to the rendering's values."""
        self._given = ()
        self._weights.clear()

    def tick(self, units: int = 1) -> None:
        """Count steps."""
        self._left -= units
        if self._left < 0:
            self._look()

    def output(self, value: Any) -> str:
        """Return the text of a value that the template outputs."""
        if value.__class__ is not str:
            return self.text_of(value)
        if len(value) > SMALL:
            self.tick(len(value) >> 8)
        return value

    def text_of(self, value: Any) -> str:
        """Return `str(value)`."""
        self.seen(value)
        return str(value)

    def join(self, values: Iterable[str]) -> str:
        """Return joined texts: a template's output, or a macro's."""
        texts = values if values.__class__ is list else list(values)
        if len(texts) == 1:
            return texts[0]
        self.allow_text(sum(map(len, texts)))
        return "".join(texts)

    def iterate(self, values: Any) -> Any:
        """Count the items that a loop iterates over; its turns count themselves."""
        if values.__class__ in _SIZED and len(values) > SMALL:
            self.tick(len(values) >> 4)
        return values

    def watch(self, values: Iterator[ItemT]) -> Iterator[ItemT]:
        """Count the items of an iterator."""
        for value in values:
            self.tick()
            yield value

    def made(self, value: Any) -> Any:
        """Count a new value."""
        kind = value.__class__
        if kind is str:
            if len(value) > SMALL:
                self.allow_text(len(value))
        elif kind is int:
            if value > MAX_PLAIN_INT or value < -MAX_PLAIN_INT:
                self.allow_bits(value.bit_length())
        elif kind not in _SCALARS:
            self.touch(value)
        return value

    def seen(self, value: Any) -> Any:
        """Count a value that is compared or searched."""
        kind = value.__class__
        if kind is str:
            if len(value) > SMALL:
                self.tick(len(value) >> 8)
        elif kind not in _SCALARS:
            self.touch(value)
        return value

    def touch(self, value: Any) -> int:
        """Count a traversal of a value and everything in it; return its weight."""
        if isinstance(value, str):
            self.tick(1 + (len(value) >> 8))
            return len(value)
        if isinstance(value, range):
            self.tick(1 + (len(value) >> 4))
            return ITEM_WEIGHT * len(value)
        return self.weigh(value)[0] if _is_container(value) else ITEM_WEIGHT

    def weigh(self, value: Any) -> tuple[int, int]:
        """Return the weight of a list or object written out, and its depth.

        A value that occurs twice counts twice: nesting a list of twice the same list forty times gives 2**40 items.
        """
        known = self._weights.get(id(value))
        if known is not None:
            return known[1], known[2]
        self.tick(1 + len(value))
        weight, depth = ITEM_WEIGHT * len(value) + _size_of_keys(value), 0
        for item in value.values() if isinstance(value, Mapping) else value:
            kind = item.__class__
            if kind is str:
                weight += len(item)
            elif kind in _SCALARS:
                continue
            elif kind is dict or kind is list or _is_container(item):
                inner, levels = self.weigh(item)
                weight += inner
                depth = max(depth, levels)
            elif isinstance(item, str):
                weight += len(item)
        return self._weighed(value, weight, depth + 1)

    def trust(self, values: Iterable[Any]) -> None:
        """Register values from the client that are often written as JSON; they are unchanged, and need no measuring."""
        self._trusted.update(map(id, values))

    def is_trusted(self, value: Any) -> bool:
        """Return whether a value was registered by `trust`."""
        return id(value) in self._trusted

    def allow_text(self, size: int) -> None:
        """Count a new text; raise LimitError if it is too long."""
        if size > self.limits.text and size > self._room():
            raise LimitError(f"makes a text of {size} characters; the limit is {self._room()}")
        self.tick(1 + (size >> 8))

    def allow_weight(self, weight: int) -> None:
        """Raise LimitError if a list or object is too large."""
        if weight > self.limits.text and weight > self._room():
            raise LimitError(
                f"makes a list or object that weighs {weight} (8 for each item, 1 for each character); the limit is "
                f"{self._room()}"
            )

    def allow_bits(self, bits: int) -> None:
        """Raise LimitError if an integer is too long."""
        self.tick()
        if bits > MAX_BITS:
            raise LimitError(f"makes an integer of {bits} bits; the limit is {MAX_BITS}")

    def _weighed(self, value: Any, weight: int, depth: int) -> tuple[int, int]:
        self.allow_weight(weight)
        if depth > MAX_DEPTH:
            raise LimitError(f"nests lists or objects {depth} deep; the limit is {MAX_DEPTH}")
        if weight > _KEPT_WEIGHT or depth > 2:
            self._weights[id(value)] = (value, weight, depth)
        return weight, depth

    def _room(self) -> int:
        """Return the limit of a text, including the input's share."""
        return self.limits.text + self.limits.per_input * self._input_size()

    def _input_size(self) -> int:
        if self._input < 0:
            self._input = _size(self._given)
        return self._input

    def _look(self) -> None:
        """Raise LimitError if a limit is exceeded; otherwise continue for a quantum."""
        limits = self.limits
        self._used += self._granted - self._left
        self._left = self._granted = QUANTUM
        if self._used > limits.steps:
            raise LimitError(f"takes more than {limits.steps} steps")
        if self._used > self._brief and self._used > self._brief + (self._input_size() >> 5):
            raise NotBriefError
        if monotonic() > self._deadline:
            raise LimitError(f"takes longer than {limits.seconds:g} s")
        resident = resident_bytes()
        if self._base < 0:
            self._base = resident
        elif resident - self._base > limits.memory and self._used > 100 * QUANTUM:
            raise LimitError(f"takes more than {limits.memory >> 20} MiB of memory")


def _is_container(value: Any) -> bool:
    return isinstance(value, _CONTAINERS)


def _size_of_keys(value: Any) -> int:
    if not isinstance(value, Mapping):
        return 0
    try:
        return sum(map(len, value))
    except TypeError:  # numbers, say
        return sum(len(key) if isinstance(key, str | tuple) else ITEM_WEIGHT for key in value)


def _size(given: Iterable[Any]) -> int:
    """Return the size of a client's value: its characters, plus ITEM_WEIGHT per value."""
    size, waiting = 0, list(given)
    while waiting:
        value = waiting.pop()
        size += ITEM_WEIGHT
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return size
