"""Records which engines have cached which prefixes, in one table with a bit for each engine."""

from __future__ import annotations

from collections.abc import Iterable

from .prompt_prefixes import FIRST, GROWTH, PromptPrefixes


class PrefixIndex:
    """Maps the hash of a prefix to the engines that hold it.

    Looks up a prompt once for all engines. The number of look-ups grows with the number of different match
    lengths, not with the number of engines. For example, all engines hold the blocks of a common system
    prompt. Prefixes that are much longer than the longest match are not hashed.
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

    def num_held(self, prompt: PromptPrefixes) -> dict[int, int]:
        """Return the number of leading prefixes that each engine holds, by engine number, if at least one.

        Afterwards, `prompt.known` is longer than the longest match, unless that is the whole prompt.

        Args:
            prompt: prefixes of the prompt. An engine that holds a prefix holds all shorter ones.
        """
        found: dict[int, int] = {}
        holders, known = self._holders, prompt.up_to(FIRST)
        engines = holders.get(known[0], 0) if known else 0
        # Engines that hold the prefix at `start`, but not the prefix at `end`.
        open_ranges: list[tuple[int, int, int]] = []
        start = 0
        while engines:
            end = len(known) - 1
            further = holders.get(known[end], 0) & engines
            if further != engines:
                open_ranges.append((engines & ~further, start, end))
            engines, start = further, end
            if len(known) >= prompt.num_blocks:
                _note(found, engines, len(known))
                break
            if engines:
                known = prompt.up_to(GROWTH * len(known))
        while open_ranges:
            engines, start, end = open_ranges.pop()
            while end - start > 1 and engines:
                middle = (start + end) // 2
                further = holders.get(known[middle], 0) & engines
                if further != engines:
                    if further:
                        open_ranges.append((further, middle, end))
                        engines &= ~further
                    end = middle
                else:
                    start = middle
            _note(found, engines, start + 1)
        return found


def _note(found: dict[int, int], engines: int, num_held: int) -> None:
    """Note how many prefixes some engines hold; bits say which engines."""
    while engines:
        lowest = engines & -engines
        found[lowest.bit_length() - 1] = num_held
        engines ^= lowest
