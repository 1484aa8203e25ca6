"""What a server leaves behind when it crashes is enough for a bug report, and holds no secret and no prompt."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .server import ServerProcess, echo_server, wait_until

pytestmark = pytest.mark.slow

KEY = "a-client-key-of-the-tenant-0123456789"
ADMIN_KEY = "an-admin-key-0123456789"
PROMPT = "the-secret-question-of-a-client"
PASSWORD = "pass-of-a-data-base"
VARIABLE = "value-of-a-secret-variable"
TENANT = "tenant-ann-of-green-gables"
PLANTED = (KEY, ADMIN_KEY, PROMPT, PASSWORD, VARIABLE, TENANT)
OPTIONS = (
    *("--api-key", f"{TENANT}={KEY}", "--admin-api-key", ADMIN_KEY),
    *("--observers", "request-metrics,request-log", "-o", "observer.request-metrics.max_tenants=5"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("reports")
    (folder / "redis:").mkdir()
    path = f"observer.request-log.path={folder}/redis://ann:{PASSWORD}@host"  # a file that looks like a URL
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOME_API_TOKEN", VARIABLE)
        with echo_server(folder, *OPTIONS, "-o", path) as server:
            yield server


def ask(server: ServerProcess, key: str = KEY) -> int:
    """Ask for an answer; return the status."""
    body: dict[str, Any] = {
        "model": "echo",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 4,
    }
    return httpx.post(
        f"{server.url}/v1/chat/completions?token={KEY}",
        json=body,
        headers={"authorization": f"Bearer {key}"},
        trust_env=False,
        timeout=60,
    ).status_code


def reports(server: ServerProcess) -> list[Path]:
    return sorted((server.storage / "crashes").glob("[0-9]*"))


def crashed(server: ServerProcess, number: int) -> Path:
    """End the engine by a signal; return the report once the next engine runs."""
    num_reports = len(reports(server))
    server.signal_engine(number)
    wait_until(lambda: len(reports(server)) > num_reports, 20, "the report")
    wait_until(lambda: ask(server) == 200, 60, "the restart")
    return reports(server)[-1]


def bundle(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "llmfw.api", "debug", "bundle", *map(str, arguments)]
    environment = os.environ | {"SOME_API_TOKEN": VARIABLE, "NO_PROXY": "*"}
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {each.name: archive.extractfile(each).read().decode() for each in archive}  # type: ignore[union-attr]


def test_a_killed_engine_leaves_its_last_steps(server: ServerProcess) -> None:
    assert ask(server) == 200
    report = crashed(server, signal.SIGKILL)
    facts = json.loads((report / "report.json").read_text())
    assert facts["signal"] == "SIGKILL"
    assert facts["engine"]["model"]
    steps = [json.loads(line) for line in (report / "steps.jsonl").read_text().splitlines()]
    assert [step["num_sequences"] for step in steps[-2:]] == [1, 1]
    assert f"A crash report is in {report}" in server.log.read_text()


def test_a_crashed_engine_leaves_its_stacks(server: ServerProcess) -> None:
    report = crashed(server, signal.SIGSEGV)
    stacks = (report / "stacks.txt").read_text()
    assert "most recent call first" in stacks
    assert stacks in server.log.read_text()


def test_a_bundle_holds_no_planted_secret(server: ServerProcess, tmp_path: Path) -> None:
    assert [ask(server), ask(server, "wrong")] == [200, 401]
    report = crashed(server, signal.SIGKILL)
    path = tmp_path / "bundle.tar.gz"
    made = bundle("--output", path, "--storage", server.storage, "--url", server.url, "--api-key", ADMIN_KEY)
    assert made.returncode == 0, made.stderr
    files = contents(path)
    names = {name.removeprefix("llmfw-bundle/") for name in files}
    assert {f"crashes/{report.name}/report.json", "server/metrics.txt", "about.json"} <= names
    assert all(name in made.stdout for name in names)
    assert "It holds no prompts, replies or keys" in made.stdout
    assert 'tenant="tenant-1"' in files["llmfw-bundle/server/metrics.txt"]
    held = "".join(files.values()) + made.stdout
    assert [planted for planted in PLANTED if planted in held] == []
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_unwritable_folder_does_not_stop_restarts(server: ServerProcess) -> None:
    folder, away = server.storage / "crashes", server.storage / "away"
    folder.rename(away)
    folder.write_text("a file in its place")
    server.signal_engine(signal.SIGKILL)
    wait_until(
        lambda: f"No crash report could be written to {folder}" in server.log.read_text(), 20, "a line"
    )
    wait_until(lambda: ask(server) == 200, 60, "the restart")
    folder.unlink()
    away.rename(folder)


def test_a_stopped_server_leaves_no_report(server: ServerProcess) -> None:
    num_reports = len(reports(server))
    assert server.stop() == 0
    assert len(reports(server)) == num_reports
    server.start()


def test_reports_are_packed_without_a_server(server: ServerProcess, tmp_path: Path) -> None:
    recording = tmp_path / "steps"
    recording.write_text("token ids")
    path = tmp_path / "bundle.tar.gz"
    made = bundle("--output", path, "--storage", server.storage, "--recording", recording)
    assert made.returncode == 0, made.stderr
    assert "Left out: / of the server" in made.stdout
    assert "It holds the token ids of prompts and replies" in made.stdout
    assert contents(path)["llmfw-bundle/steps.recording"] == "token ids"
    again = bundle("--output", path, "--storage", server.storage)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "cannot be made: File exists" in again.stderr
