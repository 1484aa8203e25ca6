"""What each attack is measured by: a served demo model, a second client that must not notice, and resident memory.

    def test_many_headers_end_one_connection(server):
        with unhurt(server):
            ...  # attack server.port

`unhurt` fails if the second client's requests fail or are slow, if a process ended, or if memory stays taken, other than
that of the prefix cache.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..crash.server import ServerProcess
from .memory import ServerMemory

MAX_P99_MS = float(os.environ.get("LLMFW_ATTACK_P99_MS", "250"))
"""Of the second client. On a machine that does other work at the same time, allow more."""
MAX_KEPT_BYTES = 100 * 2**20
MEMORY_PATIENCE_S = 15.0
AFTER_S = 1.0  # what an attack leaves behind may hurt, too
PROBE = Path(__file__).parent / "probe.py"


@dataclass(frozen=True)
class Report:
    """What the second client saw."""

    latencies_ms: list[float]
    failures: list[str]

    @property
    def p99_ms(self) -> float:
        """99th percentile, or the worst of fewer than a hundred."""
        ranked = sorted(self.latencies_ms)
        return ranked[min(len(ranked) - 1, int(len(ranked) * 0.99))]

    def __str__(self) -> str:
        median = statistics.median(self.latencies_ms)
        return (
            f"{len(self.latencies_ms)} probes: p50 {median:.0f} ms, p99 {self.p99_ms:.0f} ms, "
            f"worst {max(self.latencies_ms):.0f} ms, {len(self.failures)} failed {self.failures[:3]}"
        )


@contextmanager
def probing(port: int, key: str = "") -> Iterator[list[Report]]:
    """Have a second client send requests during the block; its report is in the list after the block."""
    found: list[Report] = []
    command = [sys.executable, str(PROBE), str(port), key]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            time.sleep(0.3)  # for its interpreter to start, and a few requests before the attack
            yield found
            time.sleep(AFTER_S)
        finally:
            output, _ = process.communicate()
    found.append(Report(**json.loads(output)))


@contextmanager
def unhurt(server: ServerProcess, key: str = "", max_p99_ms: float = MAX_P99_MS) -> Iterator[None]:
    """Run an attack in the block, and assert that it hurt only the attacker.

    Args:
        key: API key of the second client.
        max_p99_ms: milliseconds that a probe may take.
    """
    memory, pids = ServerMemory(server.pids), set(server.pids)
    before = memory.resident_bytes()
    with probing(server.port, key) as found:
        yield
    report = found[0]
    print(report)
    assert not report.failures, str(report)
    assert report.p99_ms <= max_p99_ms, str(report)
    assert pids <= set(server.pids), f"a process ended:\n{server.log.read_text()[-3000:]}"
    assert_memory_returns(memory, before)


def assert_memory_returns(memory: ServerMemory, before: int) -> None:
    """Assert that resident memory comes back to what it was before, but for 100 MB."""
    deadline = time.monotonic() + MEMORY_PATIENCE_S
    while (kept := memory.resident_bytes() - before) > MAX_KEPT_BYTES:
        assert time.monotonic() < deadline, f"{kept / 2**20:.0f} MB more than before the attack"
        time.sleep(0.2)
