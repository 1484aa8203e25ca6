"""An error says what happened, and then what to do: two clauses, and no full stop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = {
    "ConfigError",
    "ConflictError",
    "ContextLengthError",
    "GrammarCostError",
    "ModelError",
    "OverloadedError",
    "PluginError",
    "RequestError",
}
ADVICE = (
    "; ",
    ": ",
    "must",
    "has to",
    "have to",
    "instead",
    "needed",
    "needs",
    "advice",
    "problem",
    "hint",
    "reason",
    "{error}",
    "{why}",
)
"""What a second clause starts with, and names of variables that hold one."""

EXEMPT = (
    "Cannot cancel a batch with status",  # OpenAI's words, which clients may compare
    "the weights alone have",  # a line of the report of `llmfw plan`
    "the server is shutting down",
    "this engine's task is",  # the API has checked it before
)


@cache
def messages() -> tuple[tuple[str, str], ...]:
    """Return where errors are raised, and their texts with the names of values in braces."""
    return tuple(find_messages())


def find_messages() -> Iterator[tuple[str, str]]:
    for house in ("api", "core", "plugins"):
        for path in sorted((ROOT / house).rglob("*.py")):
            source = path.read_text("utf-8")
            if not any(f"raise {kind}" in source for kind in KINDS):
                continue  # to parse all files takes a second
            for node in ast.walk(ast.parse(source)):
                text = text_of(node.exc) if isinstance(node, ast.Raise) else None
                if text and not text.startswith(EXEMPT):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def text_of(raised: ast.expr | None) -> str | None:
    """Return the text of an error that a client or an operator gets; None for other expressions."""
    if (
        not isinstance(raised, ast.Call)
        or not isinstance(raised.func, ast.Name)
        or raised.func.id not in KINDS
    ):
        return None
    match raised.args:
        case [ast.Constant(value=str(text)), *_]:
            return text
        case [ast.JoinedStr(values=pieces), *_]:
            return "".join(map(piece_of, pieces))
    return None


def piece_of(piece: ast.expr) -> str:
    """Return the text of a constant, or of a value the names in it."""
    if isinstance(piece, ast.Constant):
        return str(piece.value)
    names = [node.id for node in ast.walk(piece) if isinstance(node, ast.Name)]
    return "{" + " ".join(names) + "}"


def test_errors_say_what_to_do() -> None:
    silent = [f"{at}: {text}" for at, text in messages() if not any(word in text for word in ADVICE)]
    assert silent == []


def test_errors_end_without_a_full_stop() -> None:
    ended = [f"{at}: {text}" for at, text in messages() if text.endswith((".", "!"))]
    assert ended == []


def test_enough_errors_are_found() -> None:
    assert sum(1 for _ in messages()) > 300
