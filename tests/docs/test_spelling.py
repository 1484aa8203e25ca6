"""Code, messages and pages have American spelling, as quantization, tokenizer and other names of the field do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".md", ".cpp", ".h"}
NOT_OURS = ("plugins/model_demo/corpus", "tests/seeds", "tests/docs/test_spelling.py")
"""What the embedded model was trained on, recorded notebooks, and this file."""

BRITISH = re.compile(
    r"(?:authori|capitali|customi|finali|generali|initiali|maximi|memori|minimi|normali|optimi|organi|penali"
    r"|prioriti|quanti|randomi|recogni|seriali|speciali|standardi|summari|synchroni|tokeni|utili|vectori)"
    r"s(?:e|ing|ation)"
    r"|(?:behavi|col|fav|hon|neighb)our|label(?=led|ling)|model(?=led|ling)|catalogue|analyse\b|licence|\bcentre"
    r"|artefact|ageing|\btowards\b|whilst|amongst|judgement"
)
"""British forms in lower case: a regex that ignores case takes three times as long.

Not among them: "cancelled", which OpenAI's batches and Python's asyncio have.
"""


def files() -> Iterator[Path]:
    """Yield the sources and the pages."""
    yield ROOT / "README.md"
    for folder in ("core", "plugins", "api", "docs", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in SUFFIXES and path.is_file() and not name.startswith(NOT_OURS):
                yield path


def british(path: Path) -> list[str]:
    """Return the lines of a file that have a British form."""
    text = path.read_text("utf-8")
    if not BRITISH.search(text.lower()):
        return []
    return [
        f"{path.relative_to(ROOT)}:{i}: {line.strip()}"
        for i, line in enumerate(text.splitlines(), 1)
        if BRITISH.search(line.lower())
    ]


def test_texts_and_names_have_american_spelling() -> None:
    assert [line for path in files() for line in british(path)] == []


@pytest.mark.parametrize(
    "word", ["Quantised", "is_penalised", "neighbours", "HONOURED", "labelled", "towards"]
)
def test_british_forms_are_found(word: str) -> None:
    assert BRITISH.search(word.lower())


@pytest.mark.parametrize(
    "word", ["cancelled", "advised", "otherwise", "hours", "installed", "precise", "serial"]
)
def test_words_without_a_variant_pass(word: str) -> None:
    assert not BRITISH.search(word)
