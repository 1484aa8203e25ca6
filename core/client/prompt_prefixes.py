"""Hashes of a prompt's prefixes, computed only as far as they are needed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FIRST = 16
"""Blocks to hash at first. Most prompts match no further than a system prompt, if at all."""
GROWTH = 4
"""Ratio of the hashed blocks to those that have matched."""


class PromptPrefixes:
    """The prefixes of a prompt that consist of whole blocks.

    Args:
        tokens: token ids of the prompt.
        salt: salt of the prompt; only prompts with equal salts share prefixes.
        block: number of tokens in a block; 0: there are no prefixes.

    Attributes:
        num_blocks: number of prefixes.
        known: hash of each prefix, by ascending length, as far as `up_to` has computed them.
    """

    __slots__ = ("_block", "_salt", "_tokens", "known", "num_blocks")

    def __init__(self, tokens: list[int] | npt.NDArray[np.int32], salt: str, block: int) -> None:
        self.known: list[int] = []
        self.num_blocks = len(tokens) // block if block else 0
        self._tokens = tokens
        self._salt = salt
        self._block = block

    @classmethod
    def of_hashes(cls, hashes: Iterable[int]) -> PromptPrefixes:
        """Return the prefixes with these hashes."""
        prefixes = cls([], "", 0)
        prefixes.known = list(hashes)
        prefixes.num_blocks = len(prefixes.known)
        return prefixes

    def up_to(self, count: int) -> Sequence[int]:
        """Compute the hashes of at least `count` prefixes, or of all if there are fewer; return `known`."""
        if len(self.known) < min(count, self.num_blocks):
            self._compute(min(count, self.num_blocks))
        return self.known

    def _compute(self, count: int) -> None:
        import numpy as np  # a server with one engine does not need it

        from llmfw.core.schedule.cache.prefix_hash import hash_of_salt, prefix_hashes

        block, start = self._block, len(self.known) * self._block
        tokens = self._tokens[start : count * block]
        if isinstance(tokens, list):
            try:
                tokens = np.frombuffer(array("i", tokens), np.int32)
            except (OverflowError, TypeError):  # no token ids; the engine will refuse the prompt
                self.num_blocks = len(self.known)
                return
        before = self.known[-1] if self.known else hash_of_salt(self._salt)
        self.known += prefix_hashes(tokens, start, before)[block - 1 :: block].tolist()


NO_PREFIXES = PromptPrefixes([], "", 0)
"""Prefixes of a request that does not use the prefix cache."""
