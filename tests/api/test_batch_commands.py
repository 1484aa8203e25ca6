"""`llmfw batch` against a running server: from a file to its results."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.api.commands.batch.first_line import endpoint_of

from ..doubles.batch_lines import request, statuses_of, texts_of, write_requests
from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving, wait_until
from ..doubles.terminal import Terminal

COMMAND = (sys.executable, "-m", "llmfw.api", "batch")


def llmfw(server: Served, *arguments: str) -> Result:
    return CliRunner().invoke(build_cli(), ["batch", *arguments, "--url", server.url])


def submit(server: Served, path: Path, *options: str) -> str:
    """Return the id of a batch that has ended."""
    return llmfw(server, "submit", str(path), "--wait", *options).stdout.strip()


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A file with two requests that can be answered and one that cannot."""
    bad = request("bad", temperature=-1)
    return write_requests(tmp_path / "in.jsonl", [request("a"), bad, request("b", "World 🎉")])


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose answers take their time."""
    with serving(EchoEngine(delay=0.02), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


@pytest.fixture
def running(slow: Served, tmp_path: Path) -> Iterator[str]:
    """The id of a batch that runs for longer than the test."""
    many = [request(str(n), "abc" * 30) for n in range(500)]
    batch_id = llmfw(slow, "submit", str(write_requests(tmp_path / "long.jsonl", many))).stdout.strip()
    yield batch_id
    llmfw(slow, "cancel", batch_id, "--wait")


def test_a_file_is_submitted_waited_for_and_read(server: Served, mixed: Path, tmp_path: Path) -> None:
    done = llmfw(server, "submit", str(mixed), "--wait")
    assert done.exit_code == 0, done.stderr
    assert "has completed: 3 of 3 lines, 1 of them failed" in done.stderr
    batch_id = done.stdout.removesuffix("\n")
    out, errors = tmp_path / "out.jsonl", tmp_path / "errors.jsonl"
    assert llmfw(server, "results", batch_id, "--output", str(out), "--errors", str(errors)).exit_code == 0
    assert texts_of(out.read_text()) == {"a": "Hello", "b": "World 🎉"}
    assert statuses_of(errors.read_text()) == {"bad": 400}


def test_only_results_go_to_standard_output(server: Served, mixed: Path) -> None:
    result = llmfw(server, "results", submit(server, mixed))
    assert texts_of(result.stdout) == {"a": "Hello", "b": "World 🎉"}
    assert "1 of them failed; --errors FILE saves the errors of these" in result.stderr


def test_submit_prints_only_the_id(server: Served, mixed: Path) -> None:
    result = llmfw(server, "submit", str(mixed))
    assert result.exit_code == 0
    assert llmfw(server, "status", result.stdout.strip(), "--watch").exit_code == 0
    assert f"llmfw batch status {result.stdout.strip()} --watch --url {server.url}" in result.stderr


def test_metadata_and_window_are_stored_and_shown(server: Served, mixed: Path) -> None:
    batch_id = submit(server, mixed, "--metadata", "team=red", "--metadata", "night=3", "--window", "2h")
    shown = llmfw(server, "status", batch_id).stdout
    assert "metadata     team=red\n" in shown
    assert "metadata     night=3\n" in shown
    job = json.loads(llmfw(server, "status", batch_id, "--json").stdout)
    assert job["expires_at"] - job["created_at"] == 2 * 3600


def test_a_wrong_file_reports_lines(server: Served, tmp_path: Path) -> None:
    wrong = [request("a"), request("a"), request("b") | {"url": "/v1/embeddings"}, request("c")]
    result = llmfw(server, "submit", str(write_requests(tmp_path / "in.jsonl", wrong)), "--wait")
    assert result.exit_code == 1
    assert "line 2: custom_id 'a'" in result.stderr
    assert "line 3: url is '/v1/embeddings'" in result.stderr
    assert "Error: batch_" in result.stderr
    assert llmfw(server, "results", result.stdout.strip()).exit_code == 1


def test_without_successes_only_errors_are_written(server: Served, tmp_path: Path) -> None:
    path = write_requests(tmp_path / "in.jsonl", [request("a", temperature=-1)])
    result = llmfw(server, "results", submit(server, path), "--errors", str(tmp_path / "errors"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has no output: it is completed, 1 of 1 lines, 1 of them failed" in result.stderr
    assert statuses_of((tmp_path / "errors").read_text()) == {"a": 400}


def test_without_failures_no_error_file_is_written(server: Served, tmp_path: Path) -> None:
    path = write_requests(tmp_path / "in.jsonl", [request("a")])
    result = llmfw(server, "results", submit(server, path), "--errors", str(tmp_path / "errors"))
    assert result.exit_code == 0
    assert "no line failed" in result.stderr
    assert not (tmp_path / "errors").exists()


def test_a_running_batch_has_no_results_yet(slow: Served, running: str) -> None:
    result = llmfw(slow, "results", running)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there are results when it has ended: llmfw batch status" in result.stderr


def test_a_cancelled_batch_keeps_its_results(slow: Served, running: str) -> None:
    def lines_done() -> int:
        job = json.loads(llmfw(slow, "status", running, "--json").stdout)
        return int(job["request_counts"]["completed"])

    wait_until(lambda: lines_done() > 0)
    result = llmfw(slow, "cancel", running, "--wait")
    assert result.exit_code == 0, result.stderr
    assert re.search(
        rf"{running} was cancelled: \d+ of 500 lines have a result, \d+ failed or did not run", result.stderr
    )
    assert f"Results: llmfw batch results {running} --output FILE --errors FILE --url" in result.stderr
    assert texts_of(llmfw(slow, "results", running).stdout)


def test_an_ended_batch_cannot_be_cancelled(server: Served, mixed: Path) -> None:
    result = llmfw(server, "cancel", submit(server, mixed))
    assert result.exit_code == 1
    assert result.stderr == "Error: 409 from the server: Cannot cancel a batch with status 'completed'.\n"


def test_batches_are_listed_newest_first(server: Served, mixed: Path) -> None:
    older, newer = submit(server, mixed), submit(server, mixed)
    found = [job["id"] for job in json.loads(llmfw(server, "list", "--limit", "2", "--json").stdout)]
    assert found == [newer, older]
    rows = llmfw(server, "list", "--limit", "1").stdout
    assert newer in rows
    assert "3/3" in rows
    assert older not in rows


@pytest.mark.parametrize("command", ["status", "cancel", "results"])
def test_an_unknown_batch_is_one_line(server: Served, command: str) -> None:
    result = llmfw(server, command, "batch_x? y")
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        result.stderr
        == "Error: 404 from the server: there is no batch 'batch_x? y'; GET /v1/batches lists those of this key\n"
    )


def test_a_missing_key_is_explained(tmp_path: Path, mixed: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="sesame") as locked:
        assert llmfw(locked, "submit", str(mixed), "--wait", "--api-key", "sesame").exit_code == 0
        assert "401 from the server: an API key is needed" in llmfw(locked, "list").stderr


def test_an_unreachable_server_is_named(mixed: Path) -> None:
    arguments = ["batch", "submit", str(mixed), "--url", "http://127.0.0.1:9"]
    result = CliRunner().invoke(build_cli(), arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: no server answers at http://127.0.0.1:9" in result.stderr


@pytest.mark.parametrize("url", ["/v1/completions", "/completions", "completions", "/v1/completions/"])
def test_the_endpoint_comes_from_the_first_line(tmp_path: Path, url: str) -> None:
    line: dict[str, Any] = request("a") | {"url": url}
    (tmp_path / "in.jsonl").write_text("\ufeff\n \n" + json.dumps(line), "utf-8")
    assert endpoint_of(tmp_path / "in.jsonl") == "/v1/completions"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--endpoint", "/v1/moderations"],
            "--endpoint is '/v1/moderations'; batches are for /v1/chat/completions,",
        ),
        (["--endpoint", "embeddings"], "--endpoint is 'embeddings', and the first line of "),
        (["--window", "25"], "'25' is not a time; write a number of s, m, h or d up to 30d"),
        (["--window", "31d"], "'31d' is not a time"),
    ],
)
def test_a_wrong_option_is_refused_before_uploading(mixed: Path, options: list[str], message: str) -> None:
    result = CliRunner().invoke(
        build_cli(), ["batch", "submit", str(mixed), "--url", "127.0.0.1:9", *options]
    )
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_file_for_another_route_is_not_uploaded(tmp_path: Path) -> None:
    path = write_requests(tmp_path / "in.jsonl", [request("a") | {"url": "/v1/chat"}])
    result = CliRunner().invoke(build_cli(), ["batch", "submit", str(path), "--url", "127.0.0.1:9"])
    assert result.exit_code == 2
    assert "is '/v1/chat'; batches are for /v1/chat/completions" in result.stderr


def test_the_endpoint_s_version_prefix_is_optional(server: Served, mixed: Path) -> None:
    assert llmfw(server, "submit", str(mixed), "--endpoint", "completions").exit_code == 0


def test_cancel_prints_the_command_to_watch(slow: Served, running: str) -> None:
    result = llmfw(slow, "cancel", running)
    assert f"To see its end: llmfw batch status {running} --watch --url" in result.stderr


@pytest.mark.long
@pytest.mark.slow
def test_uploading_streams_the_file(server: Served, tmp_path: Path) -> None:
    body = request("a", "x" * 1000)
    path = write_requests(tmp_path / "in.jsonl", (body | {"custom_id": str(n)} for n in range(150_000)))
    code = (
        "import resource; from llmfw.api.cli import build_cli\n"
        "from llmfw.api.commands.batch import submit; import httpx\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"build_cli()(['batch', 'submit', {str(path)!r}, '--url', {server.url!r}], standalone_mode=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert path.stat().st_size > 150 * 2**20
    assert int(done.stdout.splitlines()[-1]) < 20 * 1024  # KiB


@pytest.mark.slow
def test_ctrl_c_stops_watching_only(slow: Served, running: str) -> None:
    command = (*COMMAND, "status", running, "--watch", "--url", slow.url)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        assert "in_progress" in watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 130
        assert f"{running} goes on in the server" in watching.stderr.read()
    assert "in_progress" in llmfw(slow, "status", running).stdout


@pytest.mark.slow
def test_terminals_show_a_progress_bar(slow: Served, running: str) -> None:
    terminal = Terminal("batch", "status", running, "--watch", "--url", slow.url)
    terminal.expect("/500 lines")
    terminal.expect("/s")
    terminal.type("\x03")
    terminal.expect("goes on in the server")
    assert terminal.close() == 130
