"""`llmfw batch run`: a whole file without a server, in one go or in many. The engine process has the echo engine."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import llmfw.api.offline.run
from llmfw.api.cli import build_cli

from ..doubles import run_echo
from ..doubles.batch_lines import request, statuses_of, texts_of, write_requests
from ..doubles.echo_engine import CRASH, EOS, VOCAB_SIZE
from ..doubles.terminal import Terminal
from ..length import of_length

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def own_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the log of this process to pytest."""
    monkeypatch.setattr("llmfw.api.commands.batch.run.setup_logging", lambda level, target: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model's configuration in its folder `model`."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(
        json.dumps({"vocab_size": VOCAB_SIZE, "eos_token_id": EOS})
    )
    return tmp_path


def arguments(folder: Path, *more: str) -> list[str]:
    """Return the command line that runs `in.jsonl` to `out.jsonl`."""
    paths = [str(folder / name) for name in ("in.jsonl", "model", "out.jsonl")]
    return ["batch", "run", *paths[:2], "--output", paths[2], "--load-format", "dummy", *more]


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs the command in this process."""
    monkeypatch.setattr(llmfw.api.offline.run, "ProcessEngineClient", run_echo.EchoClient)
    return lambda *more: CliRunner().invoke(build_cli(), arguments(folder, *more))


def start(folder: Path) -> subprocess.Popen[str]:
    """Start the command as a process."""
    command = [sys.executable, run_echo.__file__, *arguments(folder)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def many(count: int = 400) -> list[dict[str, object]]:
    return [request(str(n), f"{n} " * 10) for n in range(count)]


def test_results_and_failures_are_separate_files(folder: Path, run: Run) -> None:
    bad = request("bad", temperature=-1)
    write_requests(folder / "in.jsonl", [request("a"), bad, request("b", "World 🎉")])
    result = run()
    assert result.exit_code == 0, result.stderr
    assert texts_of((folder / "out.jsonl").read_text()) == {"a": "Hello", "b": "World 🎉"}
    assert statuses_of((folder / "out.errors.jsonl").read_text()) == {"bad": 400}
    assert names(folder) == ["in.jsonl", "model", "out.errors.jsonl", "out.jsonl"]
    assert "completed: 3 of 3 lines, 1 of them failed" in result.stderr


def test_an_older_error_file_is_removed(folder: Path, run: Run) -> None:
    write_requests(folder / "in.jsonl", [request("a")])
    (folder / "old").write_text("of an earlier run")
    assert run("--errors", str(folder / "old")).exit_code == 0
    assert names(folder) == ["in.jsonl", "model", "out.jsonl"]


def test_without_successes_the_output_is_empty(folder: Path, run: Run) -> None:
    write_requests(folder / "in.jsonl", [request("a", temperature=-1)])
    assert run().exit_code == 0
    assert (folder / "out.jsonl").read_bytes() == b""


def test_a_wrong_file_reports_lines_and_resumes(folder: Path, run: Run) -> None:
    write_requests(folder / "in.jsonl", [request("a"), request("a"), request("b", model="gpt")])
    result = run()
    assert result.exit_code == 1
    assert "line 2: custom_id 'a'" in result.stderr
    assert "line 3: there is no model 'gpt'; this server has" in result.stderr
    assert names(folder) == ["in.jsonl", "model"]
    write_requests(folder / "in.jsonl", [request("a"), request("b", model="gpt")])
    assert run("--served-model-name", "gpt").exit_code == 0


def test_only_a_new_storage_folder_is_removed(folder: Path, run: Run) -> None:
    write_requests(folder / "in.jsonl", [request("a")])
    (folder / "old").mkdir()
    for name in ("old", "new"):
        assert run("--storage", str(folder / name)).exit_code == 0
    assert names(folder) == ["in.jsonl", "model", "old", "out.jsonl"]


def test_a_crash_s_leftover_folder_is_removed(folder: Path, run: Run) -> None:
    write_requests(folder / "in.jsonl", [request("a")])
    (folder / "out.jsonl.llmfw.gone" / "files").mkdir(parents=True)
    assert run().exit_code == 0
    assert names(folder) == ["in.jsonl", "model", "out.jsonl"]


def test_a_foreign_folder_is_refused_untouched(folder: Path, run: Run) -> None:
    write_requests(folder / "in.jsonl", [request("a")])
    before = names(folder / "model")
    result = run("--storage", str(folder / "model"))
    assert result.exit_code == 1
    assert "is not empty, and not the folder of a run" in result.stderr
    assert names(folder / "model") == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--errors", "{}/out.jsonl"], "OUT and ERR are the same file"),
        (["--output", "{}/in.jsonl"], "FILE and OUT are the same file"),
        (["--output", "{}/none/out"], "there is no folder"),
        (["--model", "x"], "MODEL is given twice"),
        (["--port", "1"], "No such option '--port'"),
        (["--policy", "nope"], "unknown policy 'nope'"),
    ],
)
def test_errors_are_reported_before_the_work(folder: Path, run: Run, more: list[str], message: str) -> None:
    write_requests(folder / "in.jsonl", [request("a")])
    result = run(*(each.format(folder) for each in more))
    assert result.exit_code in (1, 2)
    assert message in result.stderr
    assert names(folder) == ["in.jsonl", "model"]


def test_a_line_that_crashes_the_engine_fails_alone(folder: Path, run: Run) -> None:
    crash = request("crash") | {"body": {"prompt": [CRASH]}}
    others = [request(f"r{i}") for i in range(20)]
    write_requests(folder / "in.jsonl", [*others[:10], crash, *others[10:]])
    result = run()
    assert result.exit_code == 0, result.stderr
    assert len(texts_of((folder / "out.jsonl").read_text())) == 20
    [failed] = map(json.loads, (folder / "out.errors.jsonl").read_text().splitlines())
    assert failed["custom_id"] == "crash"
    assert failed["error"]["code"] == "line_crashed_server"


def test_an_engine_not_restarted_ends_the_run(folder: Path, run: Run) -> None:
    crash = request("crash") | {"body": {"prompt": [CRASH]}}
    write_requests(folder / "in.jsonl", [request("a"), crash])
    result = run("--restart", "never")
    assert result.exit_code == 1
    assert "the engine failed: RuntimeError: the step failed" in result.stderr
    assert names(folder) == ["in.jsonl", "model", "out.jsonl.llmfw"]


def wait_for_lines(process: subprocess.Popen[str]) -> None:
    """Return when lines of the file run."""
    assert process.stderr is not None
    while "in_progress" not in process.stderr.readline():
        assert process.poll() is None


def stopped_by(folder: Path, number: int) -> subprocess.Popen[str]:
    """Start the command, and stop it by a signal while lines run; return what it has come to."""
    process = start(folder)
    wait_for_lines(process)
    time.sleep(0.2)
    process.send_signal(number)
    process.wait(20)
    return process


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_after_a_signal_the_same_command_resumes(folder: Path, run: Run, number: int) -> None:
    write_requests(folder / "in.jsonl", many())
    with stopped_by(folder, number) as process:
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 128 + number
    assert "of 400 lines are done; the same command goes on from here" in said
    assert names(folder) == ["in.jsonl", "model", "out.jsonl.llmfw"]
    result = run()
    assert result.exit_code == 0
    assert f"going on with what is in {folder / 'out.jsonl.llmfw'}" in result.stderr
    assert texts_of((folder / "out.jsonl").read_text()) == {str(n): f"{n} " * 10 for n in range(400)}


def test_a_failed_model_load_blocks_no_retry(folder: Path, run: Run) -> None:
    write_requests(folder / "in.jsonl", [request("a")])
    config = folder / "model" / "config.json"
    right = config.read_text()
    config.write_text("no JSON")
    result = run()
    assert result.exit_code == 1, result.stderr
    assert "config.json" in result.stderr
    assert names(folder) == ["in.jsonl", "model"]
    config.write_text(right)
    write_requests(folder / "in.jsonl", [request("b")])
    assert run("--served-model-name", "other").exit_code == 0


def test_a_run_resumes_only_with_equal_inputs(folder: Path, run: Run) -> None:
    path = write_requests(folder / "in.jsonl", many())
    with stopped_by(folder, signal.SIGKILL):
        pass
    result = run("--served-model-name", "other")
    assert result.exit_code == 1
    assert "this run started with the served model name" in result.stderr
    path.write_text(path.read_text().replace("399", "398"))
    result = run()
    assert result.exit_code == 1
    assert f"'{path}' has changed since this run started: it had {path.stat().st_size} bytes" in result.stderr
    assert "To start again, remove the folder" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_kills_lose_and_duplicate_nothing(folder: Path, run: Run, seed: int) -> None:
    rng = random.Random(seed)
    requests = [request(f"bad{n}", temperature=-1) for n in range(50)]
    count = of_length(300, 600)
    write_requests(folder / "in.jsonl", [*requests, *many(count)])
    for turn in range(of_length(2, 5)):
        with start(folder) as process:
            if turn == 0:  # later ones may be killed while they read what is there
                wait_for_lines(process)
            try:
                process.wait(rng.uniform(0.2, of_length(0.8, 4)))
            except subprocess.TimeoutExpired:
                process.kill()
            else:
                assert process.returncode == 0
    assert run().exit_code == 0
    assert texts_of((folder / "out.jsonl").read_text()) == {str(n): f"{n} " * 10 for n in range(count)}
    assert statuses_of((folder / "out.errors.jsonl").read_text()) == {f"bad{n}": 400 for n in range(50)}
    assert names(folder) == ["in.jsonl", "model", "out.errors.jsonl", "out.jsonl"]


@pytest.mark.slow
def test_terminals_show_a_bar_and_ctrl_c_stops(folder: Path) -> None:
    write_requests(folder / "in.jsonl", many(3000))
    terminal = Terminal(*arguments(folder), program=run_echo.__file__)
    terminal.expect("/3000 lines")
    terminal.type("\x03")
    terminal.expect("the same command goes on from here")
    assert terminal.close() == 130


@pytest.mark.long
@pytest.mark.slow
def test_the_real_engine_runs_a_file(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "Say this is a test"}], "temperature": 0}
    line = {"custom_id": "a", "method": "POST", "url": "/chat/completions", "body": chat}
    write_requests(tmp_path / "in.jsonl", [line])
    command = ["batch", "run", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    result = CliRunner().invoke(build_cli(), command)
    assert result.exit_code == 0, result.stderr
    [found] = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found["response"]["body"]["choices"][0]["message"]["content"] == "This is a test."
