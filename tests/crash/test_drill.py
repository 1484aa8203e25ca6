"""A drill: one fault after the other befalls a loaded server with keys and a certificate, beside a real Prometheus.

Streams that have begun end whole, batches lose and double no line, and each fault's alert fires in time, and no other.
LLMFW_DRILL_ROUNDS repeats it, and LLMFW_DRILL=real drills the real engine.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..doubles.certificates import needs_openssl
from .alerts import Alerts, needs_prometheus, watched
from .drill import Drill, LongStream, seconds
from .test_hard_times import fill

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    needs_openssl,
    needs_prometheus,
    # httpx leaves a connection unclosed whose request is cancelled during the TLS handshake.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

ROUNDS = int(os.environ.get("LLMFW_DRILL_ROUNDS", "1"))
IS_REAL = os.environ.get("LLMFW_DRILL") == "real"
NUM_LINES = 600
DISK_MB = 32
ALERT_S = 30.0
QUIET_S = 20.0
"""Longer than the 15 seconds after which those alerts fire that fire soon."""
ROTATION_S = 5.0
RESTARTED = "LlmfwEngineRestarted"
SILENT = "LlmfwEngineSilent"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def drill(tmp_path: Path, disk: Path) -> Iterator[Drill]:
    with Drill(tmp_path, disk, is_real=IS_REAL, num_lines=NUM_LINES) as drill:
        yield drill


@pytest.fixture
def alerts(tmp_path: Path, drill: Drill) -> Iterator[Alerts]:
    scrape = {
        "scheme": "https",
        "tls_config": {"ca_file": str(tmp_path / "trusted.pem")},
        "authorization": {"credentials_file": str(tmp_path / "metrics")},
    }
    with watched(tmp_path / "prometheus", drill.server.port, **scrape) as alerts:
        yield alerts


def stays_quiet(alerts: Alerts, before: set[str], allowed: frozenset[str] = frozenset()) -> None:
    """Watch for a while that no alert fires that did not fire before."""
    deadline = time.monotonic() + QUIET_S
    while time.monotonic() < deadline:
        assert alerts.firing() - before <= allowed
        time.sleep(1)


def fires(
    alerts: Alerts, name: str, cause: Callable[[], object], allowed: frozenset[str] = frozenset()
) -> None:
    """Cause a fault, and see its alert fire in time, and no other that did not fire before."""
    before = alerts.firing()
    cause()
    took = seconds(lambda: name in alerts.firing(), ALERT_S, name)
    assert alerts.firing() - before - allowed <= {name}
    print(f"{name} after {took:.1f} s")


def run_out_of_disk(drill: Drill, alerts: Alerts, disk: Path) -> None:
    batch = drill.submit()
    fires(alerts, "LlmfwStoreFails", lambda: fill(disk / "ballast"))
    with drill.client() as http:
        form = {"purpose": (None, "batch"), "file": ("in.jsonl", b"{}\n" * 2**18)}
        assert http.post("/v1/files", files=form).status_code == 507
    done = drill.num_done(batch)
    assert done < NUM_LINES
    (disk / "ballast").unlink()
    seconds(lambda: drill.num_done(batch) > done, 30, "the batch's going on")


def rotate(drill: Drill, alerts: Alerts) -> None:
    """Replace the keys as the documentation says: add, move the clients over, remove. Then replace the certificate."""
    before, stream, old = alerts.firing(), LongStream(drill), drill.keys["alice"][-1]
    for keys in drill.keys.values():
        keys.append(secrets.token_hex(16))
    drill.write_keys()
    seconds(lambda: drill.status(drill.keys["alice"][-1]) == 200, ROTATION_S, "adding a key")
    drill.move_clients()
    time.sleep(1)  # what the load sends just now has its key already
    for keys in drill.keys.values():
        del keys[:-1]
    drill.write_keys()
    seconds(lambda: drill.status(old) == 401, ROTATION_S, "removing a key")
    other = {"first": "second", "second": "first"}[drill.certified_as()]
    drill.use_certificate(other)
    drill.server.signal_api(signal.SIGHUP)
    seconds(lambda: drill.certified_as() == other, ROTATION_S, "the change of the certificate")
    assert stream.result() == ""
    stays_quiet(alerts, before)


def restart(drill: Drill, alerts: Alerts) -> None:
    """Drain, and start again at once."""
    before, batch = alerts.firing(), drill.submit()
    streams = [LongStream(drill) for _ in range(3)]
    with drill.absence():
        drill.server.signal_api(signal.SIGTERM)
        assert [stream.result() for stream in streams] == ["", "", ""]
        assert drill.server.wait_ended() == 0
        took = drill.server.start()
    stays_quiet(alerts, before, frozenset({"LlmfwDown"} if took > 10 else ()))
    drill.finish(batch)


def leave_down(drill: Drill, alerts: Alerts) -> None:
    with drill.absence():
        fires(alerts, "LlmfwDown", drill.server.stop)
        drill.server.start()
    seconds(lambda: "LlmfwDown" not in alerts.firing(), ALERT_S, "the end of the alert")


def end_engine(drill: Drill, alerts: Alerts, number: int) -> None:
    """Kill the engine or stop it: it is started again, and the streams that it computed go on."""
    batch, stream, count = drill.submit(), LongStream(drill), "increase(llmfw_engine_restarts_total[10m])"
    before = alerts.value(count)
    fires(alerts, RESTARTED, lambda: drill.server.signal_engine(number), frozenset({SILENT}))
    seconds(lambda: alerts.value(count) > before + 0.9, ALERT_S, "the count of restarts")
    assert stream.result() == ""
    drill.finish(batch)


def test_a_drill_ends_well(drill: Drill, alerts: Alerts, disk: Path) -> None:
    for _ in range(ROUNDS):
        stays_quiet(alerts, {RESTARTED})
        run_out_of_disk(drill, alerts, disk)
        rotate(drill, alerts)
        restart(drill, alerts)
        leave_down(drill, alerts)
        end_engine(drill, alerts, signal.SIGSTOP)
        end_engine(drill, alerts, signal.SIGKILL)
    for batch in drill.ledger.batches:
        drill.finish(batch)
    print(f"{len(drill.outcomes)} visits, {len(drill.ledger.batches)} batches of {NUM_LINES} lines")
    assert drill.complaints() == []
    assert drill.server.stop() == 0
