"""A line of the table: what a case gave, next to its limit; and the table. Imports nothing but the standard library."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from limits import GOALS, Goal
from missing_kernel import missing_kernel

HEADER = ("case", "tok/s", "ms", "limit", "ratio", "must", "note")


@dataclass
class Line:
    """One case.

    Attributes:
        case: its name.
        tok_s: tokens a second.
        ms: milliseconds of what is measured: a step, a call, a whole run.
        limit_ms: the same at the machine's own rates, as `ceilings` found them.
        ratio: of the limit; where none is given: `limit_ms / ms`.
        goal: which of `limits.GOALS` it is held to.
        most_ms: a bound on `ms`, in place of a ratio.
        note: what else is to be known, in a few words.
        failed: it could not be measured, and should have been; the note says why.
        detail: more figures, for the results' file.
    """

    case: str
    tok_s: float | None = None
    ms: float | None = None
    limit_ms: float | None = None
    ratio: float | None = None
    goal: str | None = None
    most_ms: Goal | None = None
    note: str = ""
    failed: bool = False
    detail: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute the ratio."""
        if self.ratio is None and self.ms and self.limit_ms is not None:
            self.ratio = self.limit_ms / self.ms

    @property
    def must(self) -> str:
        """What is asked for, and whether it is reached: "goal", "met" or "MISSED"."""
        if self.most_ms is not None and self.ms is not None:
            asked = f"≤ {self.most_ms.must:.2f} ms"
            return f"{asked} {_reached(-self.ms, -self.most_ms.must, -self.most_ms.goal)}"
        held = GOALS.get(self.goal or "")
        if held is None or self.ratio is None:
            return ""
        return f"{held.must:.2f} {_reached(self.ratio, held.must, held.goal)}"

    def cells(self) -> list[str]:
        """Return the line as the table shows it, by `HEADER`."""
        return [
            self.case,
            "" if self.tok_s is None else f"{self.tok_s:,.0f}",
            _milliseconds(self.ms),
            _milliseconds(self.limit_ms),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            self.must,
            " ".join(f"{'FAILED: ' if self.failed else ''}{self.note}".replace("|", "/").split()),
        ]


def _reached(value: float, must: float, goal: float) -> str:
    return "goal" if value >= goal else "met" if value >= must else "MISSED"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}" if value < 100 else f"{value:,.0f}"


def line_of_error(case: str, error: Exception) -> Line:
    """Return the line of a case that ended with an error. That FlashInfer lacks a compiled kernel is no failure."""
    if kernel := missing_kernel(error):
        return Line(case, note=f"not compiled ahead: {kernel}")
    first = (str(error).strip() or "no message").splitlines()[0][:200]
    return Line(case, failed=True, note=f"{type(error).__name__}: {first}")


def write_line(path: Path, line: Line) -> None:
    """Append a line to a stage's file, so that it stays if the stage is ended."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def read_lines(path: Path) -> list[Line]:
    """Return the lines that a stage has written, none where there is no such file."""
    if not path.exists():
        return []
    return [line_of(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def line_of(record: Mapping[str, Any]) -> Line:
    """Return the line of a record, as `asdict` makes one of it."""
    bound = record["most_ms"]
    return Line(**{**record, "most_ms": Goal(**bound) if bound else None})


def table(lines: Iterable[Line]) -> str:
    """Return the lines as a Markdown table."""
    rows = [HEADER, ["---"] * len(HEADER), *(line.cells() for line in lines)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def summary(by_stage: Mapping[str, Iterable[Line]]) -> str:
    """Return which stages failed, and which bounds were missed, in a line each."""
    failed = [name for name, lines in by_stage.items() if any(line.failed for line in lines)]
    lines = [line for several in by_stage.values() for line in several]
    missed = [line.case for line in lines if line.must.endswith("MISSED")]
    held = [line for line in lines if line.must]
    told = f"{len(failed)} stages failed" + (f": {', '.join(failed)}" if failed else "")
    told += f"\n{len(held) - len(missed)} of {len(held)} bounds met"
    return told + (f"; missed: {', '.join(missed)}" if missed else "")
