"""One turn of a comparison: a workload on one server, who used the machine's CPU meanwhile, and how fast its memory was."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import Server, machine_cpu_seconds

ATTEMPTS = 3
"""How often a turn is taken when foreign processes use too much of the CPU, or memory does not stay as fast as it is."""
STEADY = 0.1
"""By so much of its rate memory may be slower at one end of a turn than at the other."""


@dataclass
class Turns:
    """Takes turns.

    Attributes:
        llmfw: the command whose `bench` is the client.
        servers: all that are running.
        folder: of the model, whose tokenizer makes prompts of exact length.
        scale: multiplies the number of requests.
        foreign: share of the machine's CPU that may be used by others than servers and client, 0 to 1.
        wait: seconds to wait, before a turn, until they use less than that.
        limit: seconds that an attempt may take; None: as long as it takes.
        read_memory: reads it, and returns how fast, in GB/s; None: nobody does.
        core_distance: returns how far two cores are from each other, in nanoseconds; None: nobody knows.
    """

    llmfw: Path
    servers: list[Server]
    folder: Path
    scale: float
    foreign: float
    wait: float
    limit: float | None = None
    read_memory: Callable[[], float] | None = None
    core_distance: Callable[[], float] | None = None

    def take(self, server: Server, workload: str, run: int) -> dict[str, Any]:
        """Run the workload once on `server`; again, with other prompts, if others used too much CPU or memory's rate changed.

        Returns:
            The figures of `llmfw bench`, and shares of the machine's CPU under `…_cpu`. With `disturbed` true even
            the last attempt had too much foreign load, of which what idle servers used is a part here. `memory` has GB/s
            right before and right after it, which with `unsteady` true are two different ones even so; `cores_ns` has
            how far the cores were from each other then.

        Raises:
            RuntimeError: there are no figures, or not within the limit.
        """
        for attempt in range(ATTEMPTS):
            self._wait_for_quiet()
            memory, distance = _ask(self.read_memory), _ask(self.core_distance)
            found = self._attempt(server, workload, seed=run * ATTEMPTS + attempt)
            found["disturbed"] = found["foreign_cpu"] + found["idle_cpu"] > self.foreign
            if memory := memory + _ask(self.read_memory):
                found["memory"] = memory
            if distance := distance + _ask(self.core_distance):
                found["cores_ns"] = distance
            found["unsteady"] = bool(memory) and min(memory) < (1 - STEADY) * max(memory)
            print(
                f"{workload} {run + 1}: {server.name} {found['output_tok_s']} tok/s, "
                f"{found['failed']} failed, {found['short']} short, foreign CPU {found['foreign_cpu']:.1%}"
                + "".join(f", {rate:.0f} GB/s" for rate in memory)
                + "".join(f", {way:.0f} ns" for way in distance),
                flush=True,
            )
            if not found["disturbed"] and not found["unsteady"]:
                break
        return found

    def _attempt(self, server: Server, workload: str, seed: int) -> dict[str, Any]:
        command = [str(self.llmfw), "bench", "--base-url", server.url, "--workload", workload, "--json"]
        command += ["--runs", "1", "--scale", str(self.scale), "--seed", str(seed)]
        command += ["--tokenizer", str(self.folder), *server.bench]
        command += ["--model", server.model] if server.model else []
        before = self._cpu()
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self.limit)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{workload} on {server.name}: not ended after {self.limit:.0f} s") from error
        used = [b - a for a, b in zip(before, self._cpu(), strict=True)]
        if not done.stdout:
            raise RuntimeError(f"{workload} on {server.name}: {done.stderr.strip()}")
        busy, there, client, *each = used
        own = each[self.servers.index(server)]
        figures = json.loads(done.stdout)
        counted = figures.pop("runs")[0] | {"seed": seed}
        return {
            "server": server.name,
            "exact_length": figures["exact_length"],
            **counted,
            "server_cpu": round(own / there, 4),
            "client_cpu": round(client / there, 4),
            "idle_cpu": round((sum(each) - own) / there, 4),
            "foreign_cpu": round(max(0.0, busy - client - sum(each)) / there, 4),
        }

    def _cpu(self) -> list[float]:
        """Return CPU seconds so far: of the machine (used, there were), of our children, of each server."""
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        own = [server.cpu_seconds() for server in self.servers]
        return [*machine_cpu_seconds(), children.ru_utime + children.ru_stime, *own]

    def _wait_for_quiet(self) -> None:
        end = time.monotonic() + self.wait
        while time.monotonic() < end:
            before = machine_cpu_seconds()
            time.sleep(2)
            used, there = (b - a for a, b in zip(before, machine_cpu_seconds(), strict=True))
            if used / there < self.foreign:
                return


def _ask(probe: Callable[[], float] | None) -> list[float]:
    """Return what a probe of the machine says, if there is one."""
    return [] if probe is None else [probe()]
