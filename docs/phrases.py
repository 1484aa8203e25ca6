"""Counts phrases that make a sentence hard to read, in docstrings, comments, messages, help texts and pages.

    .venv/bin/python docs/phrases.py            counts by phrase
    .venv/bin/python docs/phrases.py --list     every place

A match is a sign, not a proof: read the sentence. `style` on the page of each phrase is what to write in its place.
"""

from __future__ import annotations

import argparse
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOUSES = ("core", "plugins", "api")
NOT_OURS = ("changelog.md", "models.md", "cli.md", "interfaces.md", "hooks.md")
"""Pages that are generated, or that tell the past."""

PHRASES: dict[str, tuple[str, str]] = {
    "so many": (r"\bso (?:many|much|few)\b(?! that)", "a number's name: `n`, the limit, at most N"),
    "whoever": (r"\b[Ww]ho(?:ever|soever)\b", "callers, clients, operators"),
    "who + verb": (
        r"(?:^|[.;:] |\bto |\bby |\bof )[Ww]ho (?:wants|runs|has|is|asks|only|waits)\b",
        "name the actor",
    ),
    "what of": (r"\b[Ww]hat of\b", "the part of"),
    "is told": (r"\b(?:is|are|was|were|be|been) told\b", "receives, is notified of, is reported"),
    "tells of": (r"\btells? (?:of|it|them|whether|what|who|how|which)\b", "says, reports, returns"),
    "the affair of": (r"\baffairs? of\b", "is decided by"),
    "as ... as ever": (r"\bas \w+ as ever\b", "unchanged"),
    "there is no ... that": (r"\bthere (?:is|are) no\w* [\w ]{1,30} that\b", "no X does Y"),
    "nobody": (r"\b(?:[Nn]obody|[Ss]omebody|[Nn]o one)\b", "no client, another thread, nothing"),
    "where for if": (r"(?:^|[.;:] )Where (?!(?:is|are|do|does|did|to|from)\b)", "if, when"),
    "beside": (r"\bbeside\b(?!s)", "in addition to, compared with, next to"),
    "begin": (r"\b(?:begins?|began|begun) (?:with|to|by|again|anew)\b", "start"),
    "make of": (r"\b(?:make|makes|made) (?:\w+ )?of (?:it|them|what)\b", "turns X into Y"),
    "lies in": (r"\blies? (?:in|at|with|within)\b", "is in"),
    "anew": (r"\banew\b", "again"),
    "has to be": (r"\bhas to (?:be told|know|look)\b", "must"),
    "that which": (r"\b(?:that|those|these) which\b|\bthose that\b", "name the thing"),
    "its own affair": (r"\bin words\b|\bwithout a word\b", "as text, silently"),
    "comes of": (r"\b(?:came|comes|come|became|becomes) of\b", "happens to, results from"),
}


def main() -> None:
    """Print the counts, or every place."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print every place")
    options = parser.parse_args()
    counts = Counter[str]()
    for path, line, text in texts():
        for name, found in matches(text):
            counts[name] += 1
            if options.list:
                print(f"{path}:{line}: {name}: {found}")
    for name, count in counts.most_common():
        print(f"{count:6}  {name}: write {PHRASES[name][1]}")
    print(f"{counts.total():6}  in all")


def matches(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each phrase in a text, and the words around it."""
    for name, (pattern, _) in PHRASES.items():
        for match in re.finditer(pattern, text, re.MULTILINE):
            yield name, " ".join(text[max(0, match.start() - 30) : match.end() + 40].split())


def texts() -> Iterator[tuple[str, int, str]]:
    """Yield path, line and text of everything that a person reads."""
    for house in HOUSES:
        for path in sorted((ROOT / house).rglob("*.py")):
            if "corpus" not in path.parts:
                for line, text in _strings(path.read_text("utf-8")):
                    yield str(path.relative_to(ROOT)), line, text
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if path.name not in NOT_OURS:
            yield str(path.relative_to(ROOT)), 1, path.read_text("utf-8")


def _strings(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if (
            token.type in (tokenize.STRING, tokenize.COMMENT)
            or tokenize.tok_name[token.type] == "FSTRING_MIDDLE"
        ):
            yield token.start[0], token.string


if __name__ == "__main__":
    main()
