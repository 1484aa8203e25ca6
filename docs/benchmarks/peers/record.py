"""What has been measured, as JSON lines that are added one by one, so that a run that was cut can go on.

Each line has a `kind`: "begin" (of a run: machine, versions, scale), "model" (its weights), "start" (of a server),
"ceilings" (of the machine), "turn" (of a server) and "lost" (a server that did not end a turn).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CEILINGS = ""
"""In place of a peer's name: the machine's own speed is measured."""


@dataclass(frozen=True)
class Step:
    """One thing to measure.

    Attributes:
        model, bits, workload: what is served, and under which load.
        run: from 0. Ceilings are measured before each run, and after the last one with the number after it.
        peer: name, or CEILINGS.
    """

    model: str
    bits: int
    workload: str
    run: int
    peer: str


def steps(model: str, bits: int, workloads: Iterable[str], runs: int, peers: list[str]) -> Iterator[Step]:
    """Yield what is to be measured, in order: of each workload run after run, and in a run all peers in turns.

    Each run begins with the next peer, as what stood before a turn (the ceilings, a peer that waits in another way) has
    effects on where the host runs the cores.
    """
    for workload in workloads:
        for run in range(runs):
            first = run % max(1, len(peers))
            for peer in (CEILINGS, *peers[first:], *peers[:first]):
                yield Step(model, bits, workload, run, peer)
        yield Step(model, bits, workload, runs, CEILINGS)


class Record:
    """The lines of a file.

    Args:
        path: which may not exist yet.

    Raises:
        ValueError: a line is something else; its number is told.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        self.lines: list[dict[str, Any]] = []
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                found = dict(json.loads(line))
                self.lines.append({"kind": found.pop("kind"), **found})
            except (ValueError, LookupError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not a line of a measurement") from error

    def add(self, kind: str, step: Step | None = None, **what: Any) -> None:
        """Add a line."""
        line = {"kind": kind, **(vars(step) if step else {}), **what}
        self.lines.append(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def of(self, kind: str, **wanted: Any) -> list[dict[str, Any]]:
        """Return the lines of a kind whose fields have these values."""
        return [
            line
            for line in self.lines
            if line["kind"] == kind and all(line.get(key) == value for key, value in wanted.items())
        ]

    def begin(self, scale: float, **about: Any) -> None:
        """Begin a run, or go on with one.

        Raises:
            ValueError: the file is of a run with another number of requests.
        """
        for line in self.of("begin"):
            if line["scale"] != scale:
                raise ValueError(
                    f"{self._path} is of a run with --scale {line['scale']:g}, not {scale:g}; name another file by --out"
                )
        self.add("begin", scale=scale, **about)

    def left(self, wanted: Iterable[Step]) -> list[Step]:
        """Return the steps that are still to be taken, in their order.

        A peer that was lost in a workload is not tried there again.
        """
        fields = ("kind", *Step.__annotations__)
        done = {tuple(line.get(field) for field in fields) for line in self.lines}
        lost = {(line["model"], line["bits"], line["workload"], line["peer"]) for line in self.of("lost")}
        return [
            step
            for step in wanted
            if ("turn" if step.peer else "ceilings", *vars(step).values()) not in done
            and (step.model, step.bits, step.workload, step.peer) not in lost
        ]
