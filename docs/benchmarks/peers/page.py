"""The tables of a measurement, made from its lines alone."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tables import flaws, latency, row, spread, write_between

from llmfw.plugins.bench.workloads import WORKLOADS

from .catalog import OURS
from .ceilings import RATES, READ
from .limits import Rates, Weights, most_tokens_per_second

Lines = list[dict[str, Any]]
SHARES = {"single": 0.75, "batch16": 0.7, "prefix": 0.5, "burst": 0.7, "multiturn": 0.5}
"""The part of its limit that llmfw should reach in each workload."""
TIMES = 1.2
"""How many times as fast as the best peer it should be."""
LIMIT = "of the limit"
HEADER = (
    "workload",
    "server",
    "output tok/s",
    "TTFT p50 / p99, ms",
    "ITL p50 / p99, ms",
    LIMIT,
    "llmfw is times as fast",
    "CPU of others",
)
GOALS = (
    "workload",
    "llmfw, output tok/s",
    "of the limit",
    "goal",
    "best peer",
    "llmfw is times as fast",
    "goal",
)
HEADINGS = {16: "16 bits a weight", 8: "8 bits a weight", 4: "4 bits a weight"}


def write_page(lines: Lines, data: Path, page: Path) -> None:
    """Replace what stands between the page's markers `peers`.

    Args:
        data: the file that the lines are from, to be linked.

    Raises:
        ValueError: the page lacks a marker.
    """
    link = os.path.relpath(data.resolve(), page.resolve().parent)
    write_between(
        page, "peers", f"{text(lines)}\n\nEvery turn, with its share of the CPU: [{data.name}]({link})."
    )


def text(lines: Lines) -> str:
    """Return the machine in one line, and the tables of each model and each number of bits."""
    begun = of(lines, "begin")
    if not begun:
        return "Nothing has been measured yet."
    found = [described(begun)]
    if begun[0]["scale"] != 1:
        found += [
            "",
            f"With {begun[0]['scale']:g} times the number of requests: not to be compared with other runs.",
        ]
    for bits, heading in HEADINGS.items():
        for about in {line["model"]: line for line in of(lines, "model")}.values():
            here = [
                line for line in lines if line.get("model") == about["model"] and line.get("bits") == bits
            ]
            if of(here, "turn"):
                group = Group(here, bits, Weights(about["all"], about["head"]), begun[0]["scale"])
                found += ["", f"### {about['shape']}, {heading}", "", *group.lines()]
    absent = {name: why for line in begun for name, why in line["absent"].items()}
    measured = {line["peer"] for line in of(lines, "turn")}
    found += [
        "",
        *(f"- {name} was not measured: {why}" for name, why in absent.items() if name not in measured),
    ]
    return "\n".join(found).rstrip()


def described(begun: Lines) -> str:
    """Return the machine and the versions, of all runs that added to the file."""
    machine = begun[-1]["machine"]
    dates, commits = (
        sorted({line["machine"][key] or "unknown" for line in begun}) for key in ("date", "commit")
    )
    pinned = [
        about.get("wheel") or about.get("sources") or about["packages"][0]
        for about in begun[-1]["versions"].values()
    ]
    return (
        f"{' and '.join(dates)}, commit {' and '.join(commits)}, {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Python {machine['python']}; {', '.join(pinned)}."
    )


def of(lines: Lines, kind: str, **wanted: Any) -> Lines:
    """Return the lines of a kind whose fields have these values."""
    return [
        line
        for line in lines
        if line["kind"] == kind and all(line.get(key) == value for key, value in wanted.items())
    ]


@dataclass
class Side:
    """One server under one workload.

    Attributes:
        turns: one for each run, in their order.
        ratios: our rate divided by its rate, of each run that both have.
    """

    name: str
    turns: Lines
    ratios: list[float]

    @property
    def rate(self) -> float:
        """Output tokens a second, the median."""
        return statistics.median(float(turn["output_tok_s"]) for turn in self.turns)


@dataclass
class Group:
    """The lines of one model with weights of so many bits.

    Attributes:
        weights: how many it has.
        scale: of the number of requests.
    """

    found: Lines
    bits: int
    weights: Weights
    scale: float

    def lines(self) -> list[str]:
        """Return the Markdown."""
        workloads = [name for name in WORKLOADS if of(self.found, "turn", workload=name)]
        shown = [place for place, name in enumerate(HEADER) if self.bits == 16 or name != LIMIT]
        table = [row(HEADER[place] for place in shown), row(["---"] * len(shown))]
        for name in workloads:
            table += [row(cells[place] for place in shown) for cells in self._rows(name)]
        notes = [note for name in workloads for note in self._notes(name)]
        notes += list(self._starts())
        if self.bits == 16:
            table += ["", self._rates(), "", *self._goals(workloads)]
        return table + (["", *notes] if notes else [])

    def sides(self, workload: str) -> list[Side]:
        """Return the servers that were measured under a workload, the fastest first."""
        turns = of(self.found, "turn", workload=workload)
        ours = {turn["run"]: turn["output_tok_s"] for turn in turns if turn["peer"] == OURS[self.bits]}
        found = []
        for name in dict.fromkeys(turn["peer"] for turn in turns):
            own = sorted((turn for turn in turns if turn["peer"] == name), key=lambda turn: int(turn["run"]))
            ratios = [
                ours[turn["run"]] / turn["output_tok_s"]
                for turn in own
                if turn["run"] in ours and turn["output_tok_s"]
            ]
            found.append(Side(name, own, ratios))
        return sorted(found, key=lambda side: -side.rate)

    def limits(self, workload: str, turns: Lines) -> list[float]:
        """Return the output tokens a second that each of some turns could have at most; nothing if no rates were measured.

        Memory's rate is that right before and after the turn, the mean; without it the median of those of all rounds, as
        it is of arithmetic.
        """
        measured = of(self.found, "ceilings", workload=workload)
        if self.bits != 16 or not measured:
            return []
        usual = statistics.median(line[READ] for line in measured)
        flops = statistics.median(max(line[name] for name in RATES) for line in measured)
        load = WORKLOADS[workload].scaled(self.scale)
        rates = [Rates(1e9 * statistics.mean(turn.get("memory", [usual])), 1e12 * flops) for turn in turns]
        return [most_tokens_per_second(self.weights, each, load) for each in rates]

    def share(self, workload: str, side: Side) -> float | None:
        """Return which part of its turns' own limits a server reached, the median; None if there are no limits."""
        limits = self.limits(workload, side.turns)
        if not limits:
            return None
        return statistics.median(
            turn["output_tok_s"] / most for turn, most in zip(side.turns, limits, strict=True)
        )

    def _rows(self, workload: str) -> Iterator[list[str]]:
        limits = self.limits(workload, of(self.found, "turn", workload=workload))
        if limits:
            yield [workload, "*limit*", f"*{spread(limits)}*", "", "", "", "", ""]
        for side in self.sides(workload):
            own = side.name == OURS[self.bits]
            yield [
                workload,
                f"**{side.name}**" if own else side.name,
                spread([turn["output_tok_s"] for turn in side.turns]),
                *(latency(side.turns, kind) for kind in ("ttft", "itl")),
                "" if (share := self.share(workload, side)) is None else f"{share:.0%}",
                "" if own else spread(side.ratios, digits=2),
                f"{max(turn['foreign_cpu'] + turn['idle_cpu'] for turn in side.turns):.1%}",
            ]

    def _goals(self, workloads: list[str]) -> Iterator[str]:
        yield row(GOALS)
        yield row(["---"] * len(GOALS))
        for workload in workloads:
            sides = self.sides(workload)
            ours = [side for side in sides if side.name == OURS[self.bits]]
            peers = [side for side in sides if side.name != OURS[self.bits]]
            share = self.share(workload, ours[0]) if ours else None
            times = statistics.median(peers[0].ratios) if peers and peers[0].ratios else None
            cells = [
                workload,
                f"{ours[0].rate:.1f}" if ours else "–",
                _shown(share),
                _reached(share, SHARES[workload]),
                peers[0].name if peers else "–",
                _shown(times),
                _reached(times, TIMES),
            ]
            yield row(cells)

    def _rates(self) -> str:
        measured = of(self.found, "ceilings")
        around = [rate for turn in of(self.found, "turn") for rate in turn.get("memory", [])]
        read = spread([*(line[READ] for line in measured), *around])
        products = [spread([line[name] for line in measured], digits=2) for name in RATES]
        return (
            f"Meanwhile memory was read at {read} GB/s, and matrices were multiplied at {products[0]} TFLOP/s in float32 and "
            f"{products[1]} in bfloat16."
        )

    def _notes(self, workload: str) -> Iterator[str]:
        for side in self.sides(workload):
            yield from flaws(workload, side.name, side.turns)
            if any(turn["disturbed"] for turn in side.turns):
                yield f"- {workload}, {side.name}: others used too much of the CPU in a turn, and in its repetitions."
            if any(turn.get("unsteady") for turn in side.turns):
                yield f"- {workload}, {side.name}: memory changed its rate within a turn, and within its repetitions."
        for name in dict.fromkeys(self._late(workload)):
            yield f"- {workload}, {name}: not in turns with the others, but after them."
        for line in of(self.found, "lost", workload=workload):
            yield f"- {workload}, {line['peer']}: given up in run {line['run'] + 1}: {line['reason']}"

    def _late(self, workload: str) -> Iterator[str]:
        """Yield who had a turn of a run after another one had begun a later run."""
        newest = 0
        for line in of(self.found, "turn", workload=workload):
            if line["run"] < newest:
                yield line["peer"]
            newest = max(newest, line["run"])

    def _starts(self) -> Iterator[str]:
        last = {line["peer"]: line for line in of(self.found, "start")}
        for name, line in last.items():
            if "failed" in line:
                yield f"- {name} did not start: {line['failed']}"
        texts = {name: line["text"] for name, line in last.items() if "text" in line}
        reference = texts.get(OURS[self.bits])
        others = [name for name, said in texts.items() if reference is not None and said != reference]
        if others and self.bits == 16:  # with fewer each has roundings of its own
            yield f"- Of the same prompt others make another greedy text than llmfw: {', '.join(others)}."


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _reached(value: float | None, goal: float) -> str:
    return f"{goal:g} {'–' if value is None else 'met' if value >= goal else 'missed'}"
