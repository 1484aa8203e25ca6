"""Measure llmfw and the peers that `make peers` installed: same models, machine, client and prompts.

    .venv/bin/python docs/benchmarks/bench_peers.py --help

For each model, all servers are started, and measured in turns, A B C A B C, never two at the same time; a turn is one
`llmfw bench` with one run that counts, after its warm-up, and memory is read right before and after it. Before each
round of turns, and after the last one, the machine's own speed is measured. What is found is added to a file line by
line: a run that was cut goes on where it was.
Quantized weights are compared among themselves, 8 bits with 8 bits and 4 with 4 (`--bits`).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from machine import describe_machine
from peers import ceilings, models, programs
from peers.catalog import CATALOG, INSTALLERS, home_of, missing
from peers.limits import Weights
from peers.ours import LLMFW
from peers.page import write_page
from peers.peer import CannotInstallError, Home, Peer
from peers.record import CEILINGS, Record, Step, steps
from servers import Server
from tables import split_page
from turns import Turns

from llmfw.plugins.bench.workloads import WORKLOADS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / ".bench"
SAMPLE = " point" * 12
SAMPLED = 16
START = 900.0  # seconds; vLLM compiles when it starts


def main() -> None:
    """Measure what is not in the file yet, and write the page."""
    options = parse_arguments()
    if options.page:
        split_page(options.page, "peers")  # hours of measuring are not to end in an error
    try:
        record = Record(options.out)
        if not options.only_page:
            measure_all(record, options)
    except ValueError as error:
        sys.exit(f"Error: {error}")
    if options.page:
        write_page(record.lines, options.out, options.page)


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", type=Path, default=ROOT / ".peers", help="of the peers (default .peers)")
    add("--peers", nargs="+", choices=CATALOG, default=list(CATALOG), metavar="NAME",
        help=f"those to measure, if they are installed: {', '.join(CATALOG)} (default all)")  # fmt: skip
    add(
        "--bits",
        nargs="+",
        type=int,
        choices=(16, 8, 4),
        default=[16, 8, 4],
        help="of a weight (default 16 8 4)",
    )
    add("--models", nargs="+", choices=models.MODELS, default=list(models.MODELS))
    add("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--runs", type=int, default=3, help="runs of each server that count (default 3)")
    add("--scale", type=float, default=1.0, help="multiplies the number of requests (default 1)")
    add("--limit", type=float, default=600.0, help="seconds that a turn may take (default 600)")
    add("--foreign", type=float, default=0.04, help="share of the CPU that others may use (default 0.04)")
    add("--wait", type=float, default=60.0, help="seconds to wait until they use less (default 60)")
    add(
        "--out", type=Path, default=HERE / "peers.jsonl", help="results (default docs/benchmarks/peers.jsonl)"
    )
    add("--page", type=Path, help="page whose tables are replaced, such as docs/benchmarks.md")
    add("--only-page", action="store_true", help="measure nothing, write the page from the file")
    return parser.parse_args()


def measure_all(record: Record, options: argparse.Namespace) -> None:
    """Measure each model with each kind of weights.

    Raises:
        ValueError: the file is of another kind of run.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))  # the servers are to be stopped
    WORK.mkdir(exist_ok=True)
    (WORK / ".gitignore").write_text("*\n")
    chosen = [CATALOG[name] for name in dict.fromkeys(options.peers) if CATALOG[name].bits in options.bits]
    reasons = {peer.name: missing(peer, options.folder) for peer in chosen}
    absent = {name: tidy(why, options.folder) for name, why in reasons.items() if why is not None}
    for name, why in absent.items():
        print(f"{name} is left out: {why}", flush=True)
    present = [peer for peer in chosen if peer.name not in absent]
    versions = {name: Home.of(name, options.folder).pinned for name in INSTALLERS}
    record.begin(options.scale, machine=describe_machine(), versions=versions, absent=absent)
    for model in options.models:
        for bits in options.bits:
            group = [peer for peer in present if peer.bits == bits]
            if group:
                measure(model, bits, group, record, options)


def measure(model: str, bits: int, group: list[Peer], record: Record, options: argparse.Namespace) -> None:
    """Measure one model with weights of so many bits, on all servers that have them."""
    wanted = steps(model, bits, options.workloads, options.runs, [peer.name for peer in group])
    left = record.left(wanted)
    if not any(step.peer for step in left):
        return
    folder = models.model_folder(model, WORK)
    record.add("model", model=model, shape=models.MODELS[model], **vars(Weights.of(folder)))
    busy = {step.peer for step in left}
    field = Field(folder, [peer for peer in group if peer.name in busy], options.folder)
    try:
        for name in list(field.peers):
            started = field.start(name)
            record.add("start", model=model, bits=bits, peer=name, **started)
        reader, timer = (programs.compiled(name, WORK) for name in ("read_memory", "core_distance"))
        turns = Turns(
            LLMFW,
            list(field.servers.values()),
            folder,
            options.scale,
            options.foreign,
            options.wait,
            options.limit,
            partial(programs.read_memory, reader) if reader is not None else None,
            partial(programs.core_distance, timer)
            if timer is not None and (os.cpu_count() or 1) > 1
            else None,
        )
        for step in left:
            take(step, field, turns, record)
    finally:
        field.stop()


def take(step: Step, field: Field, turns: Turns, record: Record) -> None:
    """Take one step; a server that does not end it has lost this workload, and is started anew for the next."""
    if step.peer == CEILINGS:
        record.add("ceilings", step, **ceilings.measure(WORK))
        return
    server = field.servers.get(step.peer)
    if server is None or step not in record.left([step]):
        return
    try:
        found = turns.take(server, step.workload, step.run)
    except RuntimeError as error:
        print(f"{step.peer} has lost {step.workload}: {error}", flush=True)
        record.add("lost", step, reason=field.tidy(str(error)))
        field.start(step.peer)
        turns.servers = list(field.servers.values())
    else:
        record.add("turn", step, **found)


def tidy(text: str, homes: Path) -> str:
    """Return a text without this machine's folders, for the file."""
    return text.replace(str(homes.resolve()), ".peers").replace(f"{ROOT}/", "")


class Field:
    """The servers of one comparison, those that run.

    Args:
        folder: of the model.
        peers: what to start.
        homes: folder of all peers' environments.

    Attributes:
        peers, servers: by name; `servers` has those that run.
    """

    def __init__(self, folder: Path, peers: list[Peer], homes: Path) -> None:
        self._folder = folder
        self._homes = homes
        self.peers = {peer.name: peer for peer in peers}
        self.servers: dict[str, Server] = {}

    def start(self, name: str) -> dict[str, Any]:
        """Start a server, after its end if it runs; return what is to be told of it: seconds, command and a text.

        What does not start is left out: `failed` tells why.
        """
        self._drop(name)
        peer = self.peers[name]
        home, quantizer = home_of(peer, self._homes), Home.of("llama.cpp", self._homes)
        try:
            file = models.model_file(self._folder, peer.weights, home, quantizer)
            server = self.servers[name] = peer.serve(home, file, self._folder)
            server.name = name
            with (WORK / f"{name}.log").open("wb") as log:
                ready = server.start(self._folder, log, limit=START)
            text = server.complete(SAMPLE, SAMPLED)
        except (CannotInstallError, RuntimeError, OSError, LookupError, ValueError) as error:
            self._drop(name)
            print(f"{name} does not start: {error}", flush=True)
            return {"failed": self.tidy(str(error))}
        print(f"{name} ready after {ready:.1f} s, says {text!r}", flush=True)
        return {"ready_s": round(ready, 1), "command": self.tidy(server.describe()), "text": text}

    def _drop(self, name: str) -> None:
        if name in self.servers:
            self.servers.pop(name).stop()

    def tidy(self, text: str) -> str:
        """Return a text without this machine's folders, for the file."""
        return tidy(text, self._homes)

    def stop(self) -> None:
        """End all of them."""
        while self.servers:
            self.servers.popitem()[1].stop()


if __name__ == "__main__":
    main()
