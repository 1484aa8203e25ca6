"""Records which engines have cached which prefixes, in one table with a bit for each engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class PrefixIndex:
    """Maps the hash of a prefix to the engines that hold it.

    Looks up a prompt once for all engines. The number of look-ups grows with the number of different match
    lengths, not with the number of engines. For example, all engines hold the blocks of a common system
    prompt.
    """

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}  # hash → sum of 2**number of the engines

    def __len__(self) -> int:
        return len(self._holders)

    def add(self, hashes: Iterable[int], engine: int) -> None:
        """Record that an engine holds these prefixes.

        Args:
            engine: number of the engine.
        """
        holders, bit = self._holders, 1 << engine
        for each in hashes:
            holders[each] = holders.get(each, 0) | bit

    def remove(self, hashes: Iterable[int], engine: int) -> None:
        """Record that an engine no longer holds these prefixes."""
        holders, others = self._holders, ~(1 << engine)
        for each in hashes:
            left = holders.get(each, 0) & others
            if left:
                holders[each] = left
            else:
                holders.pop(each, None)

    def num_held(self, hashes: Sequence[int]) -> dict[int, int]:
        """Return the number of leading prefixes that each engine holds, by engine number, if at least one.

        Args:
            hashes: hash of each prefix of the prompt that ends with a block. An engine that holds a prefix
                holds all shorter ones.
        """
        found: dict[int, int] = {}
        holders = self._holders
        first = holders.get(hashes[0], 0) if hashes else 0
        # Engines that hold the prefix at `start`, but not the prefix at `end`.
        open_ranges = [(first, 0, len(hashes))] if first else []
        while open_ranges:
            engines, start, end = open_ranges.pop()
            while end - start > 1 and engines:
                middle = (start + end) // 2
                further = holders.get(hashes[middle], 0) & engines
                if further != engines:
                    if further:
                        open_ranges.append((further, middle, end))
                        engines &= ~further
                    end = middle
                else:
                    start = middle
            while engines:
                lowest = engines & -engines
                found[lowest.bit_length() - 1] = start + 1
                engines ^= lowest
        return found
