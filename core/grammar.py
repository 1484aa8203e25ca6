"""The interface of a grammar engine: a schema, regex or grammar → which tokens may come next.

No bundled part implements it yet; requests that ask for structured output are refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class Grammar(ABC):
    """The state of one sequence in one compiled grammar."""

    @abstractmethod
    def mask(self) -> npt.NDArray[np.int32]:
        """Return a bit set over the vocabulary, 32 tokens a word, least significant bit first: 1 is allowed."""

    @abstractmethod
    def accept(self, token_id: int) -> None:
        """Go on to the state after this token. Raises ValueError if it is not allowed."""

    @abstractmethod
    def is_finished(self) -> bool:
        """Return whether nothing but the end of the sequence may follow."""


class GrammarBackend(ABC):
    """Compiles grammars for one vocabulary.

    Args:
        tokens: the bytes of each token id.
        eos_token_ids: the tokens that end a sequence.
    """

    @abstractmethod
    def __init__(self, tokens: Sequence[bytes], eos_token_ids: Sequence[int]) -> None: ...

    @abstractmethod
    def compile(self, kind: str, source: str) -> Grammar:
        """Compile a "json_schema", "regex" or "ebnf". Raises RequestError that names what is not supported."""
