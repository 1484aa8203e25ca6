"""A seeded source of random choices, with a split into training data and held-out data."""

import hashlib
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

HELD_OUT_ONE_IN = 8


class Draw:
    """Random choices for one side of the split, reproducible for a seed.

    Wordings are split by hand (`wording`). Generated and combined values are split by their hash
    (`fresh`), so no seed and no order of calls can move a value to the other side. Values from
    `pick` are used on both sides.

    Args:
        seed: seed of the choices.
        held_out: whether to choose from the held-out side instead of the training side.
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
        """Return a random integer from `low` to `high`, both included."""
        return self._random.randint(low, high)

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def wording(self, seen: Sequence[T], unseen: Sequence[T]) -> T:
        """Return a wording.

        On the held-out side, half of the wordings are from `unseen`, which training never uses.
        """
        return self.pick(unseen if self.held_out and self.chance(0.5) else seen)

    def fresh(self, make: Callable[[], T]) -> T:
        """Call `make` until it returns a value of this side of the split; return that value.

        Each call of `make` must draw the whole value again. If `make` could return only a few values, perhaps
        none of them would be on this side.
        """
        while is_held_out(value := make()) != self.held_out:
            pass
        return value


def is_held_out(value: object) -> bool:
    """Return whether a value is held out from training.

    Unlike `hash`, the result is the same on all machines.
    """
    return hashlib.blake2b(repr(value).encode(), digest_size=1).digest()[0] % HELD_OUT_ONE_IN == 0
