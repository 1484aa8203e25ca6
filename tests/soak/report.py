"""What a soak has shown: whether memory and descriptors grow, and how long clients waited.

    python -m tests.soak.report FOLDER

A heap grows in steps: an allocator takes memory from the system in pieces, holds what is freed in them for later, and gives it
back when it likes. So a line through all samples leans on where the last piece was taken. The slope that is judged is that of
the floors instead: the least of each five minutes, which what comes and goes cannot raise, and a leak must. The other slope is
reported next to it. It is anonymous memory that is judged: PSS falls when another program of the machine loads the same libraries,
and RSS when the system drops pages of files.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .load import Outcome
from .run import Sample

MIB = 1024 * 1024
FLOOR_S = 300.0
MOST_MIB_PER_HOUR = 1.0
MOST_DESCRIPTORS = 2.0
"""Descriptors that may be gained between the first and the last tenth: connections come and go."""
JUDGED = ("api", "engine")


class Growth(msgspec.Struct, frozen=True):
    """How one quantity changed.

    Attributes:
        first, last: medians of the first and the last tenth.
        per_hour: slope of the least-squares line through the floors, and `error` its standard error.
        raw_per_hour: slope through all samples.
    """

    first: float
    last: float
    per_hour: float
    error: float
    raw_per_hour: float


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of the least-squares line, and its standard error; both 0 for less than three points."""
    if len(points) < 3:
        return 0.0, 0.0
    xs, ys = zip(*points, strict=True)
    line = statistics.linear_regression(xs, ys)
    left = sum((y - line.slope * x - line.intercept) ** 2 for x, y in points)
    spread = sum((x - statistics.fmean(xs)) ** 2 for x in xs)
    return line.slope, (left / (len(points) - 2) / spread) ** 0.5


def floors(points: Sequence[tuple[float, float]], width: float) -> list[tuple[float, float]]:
    """Return the least of each whole interval, at the time where it was.

    Args:
        points: (seconds, value), in the order of time.
        width: of an interval, in seconds, counted from the first point.
    """
    found: dict[int, tuple[float, float]] = {}
    for at_s, value in points:
        number = int((at_s - points[0][0]) // width)
        if number not in found or value < found[number][1]:
            found[number] = (at_s, value)
    return list(found.values())


def growth(points: Sequence[tuple[float, float]], width: float = FLOOR_S) -> Growth:
    """Say how a quantity changed over the time; there is at least one point."""
    tenth = max(1, len(points) // 10)
    per_s, error = slope(floors(points, width))
    return Growth(
        statistics.median(value for _, value in points[:tenth]),
        statistics.median(value for _, value in points[-tenth:]),
        per_s * 3600,
        error * 3600,
        slope(points)[0] * 3600,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed; nan if there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Soak:
    """A recorded soak, from the end of its warm-up.

    Args:
        samples, visits: in the order of time.
        warm_up_s: what is left out at the beginning, of memory and descriptors.
    """

    def __init__(self, samples: Sequence[Sample], visits: Sequence[Outcome], warm_up_s: float) -> None:
        self.samples = [sample for sample in samples if sample.at_s >= warm_up_s]
        self.visits = visits
        self.warm_up_s = warm_up_s

    def series(self, role: str, name: str) -> list[tuple[float, float]]:
        """Return what all processes of a role held together, for each sample in which there was one."""
        return [
            (sample.at_s, float(sum(values)))
            for sample in self.samples
            if (values := [getattr(each, name) for each in sample.processes if each.role == role])
        ]

    def roles(self) -> list[str]:
        return sorted({each.role for sample in self.samples for each in sample.processes})

    def complaints(self) -> list[str]:
        """Return what a sound server would not have shown."""
        found = [
            f"{count} times: {error}"
            for error, count in Counter(v.error for v in self.visits if v.error).items()
        ]
        for role in JUDGED:
            if not (memory := self.series(role, "anonymous")):
                found.append(f"{role}: no sample after the warm-up")
                continue
            if (grown := growth(memory)).per_hour >= MOST_MIB_PER_HOUR * MIB:
                found.append(f"{role}: memory grows by {grown.per_hour / MIB:.2f} MiB an hour")
            pids = {each.pid for sample in self.samples for each in sample.processes if each.role == role}
            if len(pids) > 1:
                found.append(f"{role}: {len(pids)} processes, one after the other")
            for name in ("descriptors", "threads"):
                grown = growth(self.series(role, name))
                if grown.last - grown.first > MOST_DESCRIPTORS:
                    found.append(f"{role}: {name} grew from {grown.first:g} to {grown.last:g}")
        return found

    def memory_table(self) -> list[str]:
        """Return a row for each role: memory in MiB and its slopes, descriptors, threads, processor time."""
        rows = [
            "| process | anonymous, MiB | floors, MiB/h | all samples, MiB/h | RSS, floors, MiB/h | descriptors | threads | of a core |"
        ]
        rows.append("|---|---|---|---|---|---|---|---|")
        for role in self.roles():
            own, rss = growth(self.series(role, "anonymous")), growth(self.series(role, "rss"))
            fds, threads = growth(self.series(role, "descriptors")), growth(self.series(role, "threads"))
            busy = slope(self.series(role, "processor_s"))[0]
            rows.append(
                f"| {role} | {own.first / MIB:.1f} → {own.last / MIB:.1f} | {own.per_hour / MIB:+.2f} ± {own.error / MIB:.2f} "
                f"| {own.raw_per_hour / MIB:+.2f} | {rss.per_hour / MIB:+.2f} ± {rss.error / MIB:.2f} "
                f"| {fds.first:g} → {fds.last:g} | {threads.first:g} → {threads.last:g} | {busy:.1%} |"
            )
        return rows

    def latency_table(self, part_s: float) -> list[str]:
        """Return a row for each part of the time: milliseconds to the first token and to the end of streams and chats."""
        rows = [
            "| minutes | visits | first token p50 | p99 | stream p50 | p99 | chat p50 | p99 |",
            "|---|---|---|---|---|---|---|---|",
        ]
        parts: dict[int, list[Outcome]] = {}
        for visit in self.visits:
            parts.setdefault(int(visit.at_s // part_s), []).append(visit)
        for number, visits in sorted(parts.items()):
            streams = [visit for visit in visits if visit.kind == "stream"]
            columns = (
                [visit.first_s for visit in streams if visit.first_s is not None],
                [visit.total_s for visit in streams],
                [visit.total_s for visit in visits if visit.kind == "chat"],
            )
            cells = [f"{quantile(values, share) * 1000:.0f}" for values in columns for share in (0.5, 0.99)]
            begin, end = number * part_s / 60, (number + 1) * part_s / 60
            rows.append(f"| {begin:g} to {end:g} | {len(visits)} | {' | '.join(cells)} |")
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--warm-up", type=float, default=2100.0, help="seconds that are left out at the beginning"
    )
    parser.add_argument(
        "--part", type=float, default=600.0, help="seconds of a row of the table of latencies"
    )
    args = parser.parse_args()
    soak = Soak(
        msgspec.json.Decoder(Sample).decode_lines((args.folder / "samples.jsonl").read_bytes()),
        msgspec.json.Decoder(Outcome).decode_lines((args.folder / "visits.jsonl").read_bytes()),
        args.warm_up,
    )
    print(*soak.memory_table(), "", *soak.latency_table(args.part), "", sep="\n")
    print("visits:", dict(Counter(visit.kind for visit in soak.visits)))
    if soak.samples:
        print("figures at the end:", soak.samples[-1].figures)
    if complaints := soak.complaints():
        print(*complaints, sep="\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
