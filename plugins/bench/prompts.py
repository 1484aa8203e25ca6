"""Random prompts with a given number of tokens, from three sources.

`WordText` needs only the server: it uses common English words, and the number of tokens per word as measured
on the server (`runner.calibrate`), so lengths are right on average. `TokenizerText` uses the model's
tokenizer, so lengths are exact. `TokenIds` sends token ids.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

from .errors import BenchError

Piece = str | list[int]
"""A piece of a prompt: text or token ids. Pieces of one source can be joined with `+`."""

_COMMON = """
able about above across after again against almost alone along already also always among another answer
anything area around away back base beautiful became because become before began behind being below best
better between black board boat body book both bring brought build business call came cannot care carry
case cause center certain change check children city class clear close cold color come common complete
correct could country course cross dark days deep different does done door down draw drive during each early
earth easy either else ended enough even evening ever every example face fact family farm fast father feet
field figure final find fine fire first five follow food force form found four free friend from front full
game gave girl give goes gold gone good great green ground group grow half hand happen hard have head hear
heart heat heavy help here high hold home horse hour house however hundred idea inch island just keep kind
king knew know land language large last late later lead learn leave left less letter life light like line
list listen little live long look love machine made main make many mark matter mean measure might mile mind
minute money month moon more morning most mother mountain move much music must name near need never next
night north nothing notice number often once only open order other over page paper part pass past people
perhaps person picture piece place plain plan plane plant play point power press problem produce product
public pull question quick rain reach read ready real record remember rest right river road rock room round
rule same school second seem sentence serve several shape ship short should show side simple since sing size
sleep slow small snow some song soon sound south space special spell stand star start state stay step still
stood stop story street strong study such surface system table take talk teach tell term test than that them
then there these thing think though thought thousand three through time together took town travel tree true
turn under unit until upon usual very voice wait walk want warm watch water week weight well went were west
what wheel where which while white whole wind winter with without wonder wood word work world would write
year young
"""
WORDS = tuple(_COMMON.split())
"""Common words, most of which are one token each in most tokenizers."""


class PromptSource(Protocol):
    """A source of random pieces of prompts."""

    mode: str
    """Type of the pieces: "text" or "ids"."""

    def draw(self, rng: random.Random, tokens: int) -> Piece:
        """Return a random piece of `tokens` tokens."""


class WordText:
    """Text of random common words.

    Args:
        tokens_per_word: mean number of tokens per word of `WORDS`, with a space before it, in the server's
            tokenizer.
    """

    mode = "text"

    def __init__(self, tokens_per_word: float) -> None:
        self.tokens_per_word = tokens_per_word

    def draw(self, rng: random.Random, tokens: int) -> str:
        """Return random words of about `tokens` tokens in total."""
        return join_words(rng.choices(WORDS, k=max(1, round(tokens / self.tokens_per_word))))


class TokenizerText:
    """Text of random words that are exactly one token each.

    Args:
        folder: model folder with a `tokenizer.json`.
    """

    mode = "text"

    def __init__(self, folder: Path) -> None:
        self.words = whole_words(folder)
        self._texts = sorted(self.words)

    def draw(self, rng: random.Random, tokens: int) -> str:
        """Return exactly `tokens` random words."""
        return join_words(rng.choices(self._texts, k=tokens))


class TokenIds:
    """Draws prompts of random token ids.

    Args:
        ids: ids to choose from.
    """

    mode = "ids"

    def __init__(self, ids: range | list[int]) -> None:
        self.ids = ids

    def draw(self, rng: random.Random, tokens: int) -> list[int]:
        """Return exactly `tokens` random ids."""
        return rng.choices(self.ids, k=tokens)


COMMON_IDS = range(300, 3000)
"""Ids of ordinary tokens in nearly every tokenizer: above bytes and special tokens."""


def join_words(words: list[str]) -> str:
    """Return the words with a space before each, so that such texts can be concatenated."""
    return "".join(f" {word}" for word in words)


def whole_words(folder: Path) -> dict[str, int]:
    """Return the lower-case words that are one token in a model's tokenizer, and their ids: {word: id}.

    Raises:
        BenchError: `tokenizer.json` is missing, cannot be read, or has fewer than 50 such words.
    """
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BenchError(f"--tokenizer {folder}: no tokenizer.json in this folder")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise BenchError(f"--tokenizer {folder}: tokenizer.json cannot be read: {error}") from error
    pieces = {piece.lstrip("Ġ▁") for piece in tokenizer.get_vocab()}
    words = sorted(p for p in pieces if len(p) > 2 and p.isascii() and p.isalpha() and p.islower())
    # Each word is encoded between two others, because tokenizers may split the first word of a text
    # differently.
    before = len(tokenizer.encode(" a", add_special_tokens=False).ids)
    after = len(tokenizer.encode(" a a", add_special_tokens=False).ids) - before
    encodings = tokenizer.encode_batch([f" a {word} a" for word in words], add_special_tokens=False)
    found = {
        word: encoding.ids[before]
        for word, encoding in zip(words, encodings, strict=True)
        if len(encoding.ids) == before + 1 + after
    }
    if len(found) < 50:
        raise BenchError(f"--tokenizer {folder}: only {len(found)} words are single tokens; 50 are needed")
    return found
