"""What the processes of a server hold: memory, descriptors, threads. Needs Linux' /proc."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
ROLES = {"core.engine.process": "engine", "core.grammars.supervisor": "grammars", "multiprocessing": "helper"}


class Reading(msgspec.Struct, frozen=True):
    """What one process holds.

    Attributes:
        rss, pss: resident memory in bytes; pss counts pages that several processes share by their shares.
        processor_s: seconds of processor time since its start.
    """

    role: str
    pid: int
    rss: int
    pss: int
    anonymous: int
    descriptors: int
    threads: int
    processor_s: float


def descendants(root: int) -> list[int]:
    """Return a process and all that came from it and live."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if fields[0] not in "ZX":
            parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def reading(pid: int, role: str) -> Reading:
    """Read one process.

    Raises:
        OSError: it has ended.
    """
    folder = Path(f"/proc/{pid}")
    memory = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (
            line.partition(":") for line in (folder / "smaps_rollup").read_text().splitlines()[1:]
        )
    }
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return Reading(
        role,
        pid,
        memory["Rss"],
        memory["Pss"],
        memory["Anonymous"],
        len(os.listdir(folder / "fd")),
        int(fields[17]),
        (int(fields[11]) + int(fields[12])) / TICKS,
    )


def role_of(pid: int) -> str:
    """Return "engine", "grammars", "helper" or "other"; a helper is started by `multiprocessing`."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return next((role for part, role in ROLES.items() if part in command), "other")


def readings(root: int) -> list[Reading]:
    """Read the API process `root` and all that came from it; those that end meanwhile are left out."""
    found = []
    for pid in descendants(root):
        try:
            found.append(reading(pid, "api" if pid == root else role_of(pid)))
        except OSError:
            if pid == root:
                raise
    return found
