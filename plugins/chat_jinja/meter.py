"""Counts the cost of rendering a chat template, and aborts a rendering that costs too much.

A template is untrusted code and runs in the API process, where nothing outside Python can stop it. So its
loops, texts and lists are counted here (by `metered_code`, `metered_environment` and `filters`). Operations
that multiply sizes are counted before they allocate memory. Does not depend on Jinja.

One unit is one step (a loop iteration, a call) or 256 copied characters. A rendering is brief if it costs few
units (see `ChatTemplate.render_briefly`). Counting units instead of seconds gives the same result for each
rendering of the same chat.
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
"""Number of units between two checks of the limits."""

ITEM_WEIGHT = 8
"""Weight of an item in a list or object: the size of a reference in bytes. A text adds one per character."""

MAX_DEPTH = 500
"""Deepest nesting of lists and objects. Python recurses on the C stack to hash or compare them."""

MAX_BITS = 65_536
"""Longest integer, in bits. Multiplying longer ones takes long and cannot be interrupted."""

SMALL = 256
"""Largest size, in characters or items, of a value that is counted only as part of its block."""

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
    """A rendering exceeds a limit.

    The message names the limit. The code that reports the error puts "the chat template" before the message.
    """


class NotBriefError(RequestError):
    """A rendering that must be brief takes too long. Only this package handles the error."""

    def __init__(self) -> None:
        super().__init__("the chat template takes too long to be rendered at once", param="messages")


class Limits(msgspec.Struct, frozen=True):
    """Limits on the cost of one rendering. The module's docstring defines units and brief renderings.

    Attributes:
        seconds: maximum duration.
        steps: maximum number of units.
        text: maximum number of characters of any text, including the whole prompt; also the maximum weight of
            any list or object (see `ITEM_WEIGHT`).
        per_input: amount by which each character of the input raises `text`.
        memory: maximum number of bytes by which the process may grow.
        brief: maximum number of units of a brief rendering of an empty input. Each message raises this limit
            by `brief_message` units, and every 32 characters raise the limit by one.
        brief_message: number of units that each message adds to `brief`.
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

    Call `begin` before a rendering, and `end` after it.

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
        """Start counting a new rendering.

        Args:
            given: all values that the client sent.
            brief: whether to raise NotBriefError once the rendering is no longer brief.
            num_messages: number of messages, which raises the limit of a brief rendering.
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
        """Drop the references to the values that the rendering used."""
        self._given = ()
        self._weights.clear()

    def tick(self, units: int = 1) -> None:
        """Count units of cost; check the limits from time to time.

        Raises:
            LimitError: a limit is exceeded.
            NotBriefError: the rendering must be brief and is not.
        """
        self._left -= units
        if self._left < 0:
            self._look()

    def output(self, value: Any) -> str:
        """Return a value that the template outputs as text, and count it."""
        if value.__class__ is not str:
            return self.text_of(value)
        if len(value) > SMALL:
            self.tick(len(value) >> 8)
        return value

    def text_of(self, value: Any) -> str:
        """Return `str(value)`, after counting the value."""
        self.seen(value)
        return str(value)

    def join(self, values: Iterable[str]) -> str:
        """Join the texts that a template or macro outputs."""
        texts = values if values.__class__ is list else list(values)
        if len(texts) == 1:
            return texts[0]
        self.allow_text(sum(map(len, texts)))
        return "".join(texts)

    def iterate(self, values: Any) -> Any:
        """Count the values that a loop is about to iterate over, and return them.

        Iterations are counted elsewhere.
        """
        if values.__class__ in _SIZED and len(values) > SMALL:
            self.tick(len(values) >> 4)
        return values

    def watch(self, values: Iterator[ItemT]) -> Iterator[ItemT]:
        """Yield the items of an iterator, counting each."""
        for value in values:
            self.tick()
            yield value

    def made(self, value: Any) -> Any:
        """Count a newly created value, and return it."""
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
        """Count a value that is about to be compared or searched, and return it."""
        kind = value.__class__
        if kind is str:
            if len(value) > SMALL:
                self.tick(len(value) >> 8)
        elif kind not in _SCALARS:
            self.touch(value)
        return value

    def touch(self, value: Any) -> int:
        """Charge for reading a value with everything nested in it; return the value's weight."""
        if isinstance(value, str):
            self.tick(1 + (len(value) >> 8))
            return len(value)
        if isinstance(value, range):
            self.tick(1 + (len(value) >> 4))
            return ITEM_WEIGHT * len(value)
        return self.weigh(value)[0] if _is_container(value) else ITEM_WEIGHT

    def weigh(self, value: Any) -> tuple[int, int]:
        """Return the weight of a list or object with everything nested in it, and its nesting depth.

        The weight is ITEM_WEIGHT for each item, plus one for each character.

        An item that occurs twice counts twice: a list that contains the same list twice, nested 40 times, has
        2**40 items.
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
        """Exempt values that the client sent, such as the list of tools, from measuring.

        The exemption applies when the values are written as JSON.
        """
        self._trusted.update(map(id, values))

    def is_trusted(self, value: Any) -> bool:
        """Return whether `trust` was called with a value."""
        return id(value) in self._trusted

    def allow_text(self, size: int) -> None:
        """Count a text of `size` characters that is about to be made; raise LimitError if it is too long."""
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
        """Return the limit on a text's length, including the amount that the input adds."""
        return self.limits.text + self.limits.per_input * self._input_size()

    def _input_size(self) -> int:
        if self._input < 0:
            self._input = _size(self._given)
        return self._input

    def _look(self) -> None:
        """Check all limits; if none is exceeded, allow another quantum of units."""
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
    except TypeError:  # some keys have no length, for example numbers
        return sum(len(key) if isinstance(key, str | tuple) else ITEM_WEIGHT for key in value)


def _size(given: Iterable[Any]) -> int:
    """Return the size of a client's input: its number of characters, plus ITEM_WEIGHT per value."""
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
