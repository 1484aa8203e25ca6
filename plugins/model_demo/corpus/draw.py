"""A seeded source of choices that keeps what is held out apart from what is trained on."""

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

HELD_OUT_ONE_IN = 8


class Draw:
    """Draws from one side of the split, the same way for the same seed.

    Wordings are split by hand (`wording`), everything that is made up or combined by the hash of
    its value (`fresh`): no seed and no order of calls can bring a value to the other side.
    What is picked with `pick` is shared by both sides.
    """

    def __init__(self, seed: int, held_out: bool = False) -> None:
        self.held_out = held_out
        self._random = random.Random(f"{seed}:{held_out}")

    def pick(self, options: Sequence[T]) -> T:
        return self._random.choice(options)

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        return self._random.choices(options, weights)[0]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        return self._random.sample(options, count)

    def integer(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self._random.randint(low, high)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def wording(self, seen: Sequence[T], unseen: Sequence[T]) -> T:
        """A way to say it: half of the held-out draws use one that training never shows."""
        return self.pick(unseen if self.held_out and self.chance(0.5) else seen)

    def fresh(self, make: Callable[[], T]) -> T:
        """The first value of `make` that belongs to this side of the split.

        `make` must draw the whole value: with too few to choose from, none may be on this side.
        """
        while is_held_out(value := make()) != self.held_out:
            pass
        return value


def is_held_out(value: object) -> bool:
    """Whether a value is kept from training. Stable over runs and machines, unlike `hash`."""
    return hashlib.blake2b(repr(value).encode(), digest_size=1).digest()[0] % HELD_OUT_ONE_IN == 0
