"""A crash report has what a bug report needs, and neither secrets nor what clients sent."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.crashes.crash_folder import CrashFolder
from llmfw.api.crashes.crash_reports import CrashReports
from llmfw.api.crashes.reporting import reporting
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError, PluginError
from llmfw.core.base.replica_place import ReplicaPlace
from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.client.engine_end import EngineEnd
from llmfw.core.engine.process.heartbeat import Phase, Reading
from llmfw.core.ipc.step_ring import StepRecord

PROMPT = "what a client asked"
ENGINE = EngineConfig(
    model="m", options={"policy.depth": 3, "observer.x.token": "hush-hush", "authenticator.y": "plain"}
)


def end(message: str = "", returncode: int = -9) -> EngineEnd:
    return EngineEnd(
        reason="the engine process was killed by SIGKILL (signal 9)",
        message=message,
        returncode=returncode,
        has_hung=False,
        phase=Phase.STEP,
        num_step_tokens=512,
        lived_s=3.0,
        info=None,
        steps=[StepRecord(7, 1e9, StepSizes(512, 2))],
        log="[2026-11-27 10:00:00] Settings: options={'x': 'hush-hush'}\n",
        stacks="Thread 0x1 (most recent call first):\n",
    )


def new_reports(folder: Path, **settings: Any) -> CrashReports:
    keys = (("ann", "sha256:0123456789"),)
    server = ServerConfig(served_model_name="m", api_key=keys, options=ENGINE.options, **settings)
    return CrashReports(CrashFolder(folder), ENGINE, server)


def written(folder: Path) -> dict[str, str]:
    """Return the files of the only report."""
    [report] = CrashFolder(folder).reports()
    return {path.name: path.read_text() for path in report.iterdir()}


def test_a_report_has_reason_steps_stacks_and_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports = new_reports(tmp_path, port=1234)
    reports.add_engine_end(end())
    reports.finish()
    files = written(tmp_path)
    report = json.loads(files["report.json"])
    assert report["signal"] == "SIGKILL"
    assert report["phase"] == "step"
    assert report["num_step_tokens"] == 512
    assert report["settings"]["port"] == 1234
    assert report["settings"]["api_key"] == "not shown"
    assert report["settings"]["options"] == {
        "policy.depth": 3,
        "observer.x.token": "not shown",
        "authenticator.y": "plain",
    }
    assert "hush-hush" not in "".join(files.values())
    assert {"llmfw", "python", "torch", "transformers"} <= report["versions"].keys()
    assert report["machine"]["free_disk"] > 0
    assert json.loads(files["steps.jsonl"])["num_tokens"] == 512
    assert "most recent call first" in files["stacks.txt"]
    [report_path] = CrashFolder(tmp_path).reports()
    assert caplog.messages == [
        f"A crash report is in {report_path}; `llmfw debug bundle` packs it for a bug report"
    ]


def test_a_report_is_about_the_model_that_ended(tmp_path: Path) -> None:
    reports = new_reports(tmp_path)
    place = ReplicaPlace(1, 2, "embed")
    recorder = reports.new_recorder(EngineConfig(model="/models/mini", record_steps="f.1", place=place))
    recorder.note_started()
    recorder.finish(
        -9, "the engine process was killed by SIGKILL (signal 9)", Reading(0, 0, Phase.IDLE, 0), None
    )
    reports.finish()
    report = json.loads(written(tmp_path)["report.json"])
    assert report["which"] == "embed"
    assert report["settings"]["model"] == "/models/mini"
    assert report["recorded_steps"] == "f.1"


@pytest.mark.parametrize("crash_details", [False, True])
def test_messages_of_exceptions_are_kept_on_demand(tmp_path: Path, crash_details: bool) -> None:
    reports = new_reports(tmp_path, crash_details=crash_details)
    reports.add_engine_end(end(message=PROMPT, returncode=1))
    reports.finish()
    assert (PROMPT in "".join(written(tmp_path).values())) is crash_details


def test_an_exception_of_the_server_is_reported(tmp_path: Path) -> None:
    reports = new_reports(tmp_path)
    logger = logging.Logger("llmfw.test_of_reports")  # noqa: LOG001
    logger.addHandler(reports.log_handler)
    logger.warning("the last line")
    try:
        raise ZeroDivisionError(PROMPT)
    except ZeroDivisionError as error:
        reports.add_exception(error)
    reports.finish()
    files = written(tmp_path)
    assert json.loads(files["report.json"])["reason"] == "the server failed: ZeroDivisionError"
    assert "test_an_exception_of_the_server_is_reported" in files["stacks.txt"]
    assert "the last line" in files["api.log"]
    assert PROMPT not in "".join(files.values())


def test_a_secret_in_a_number_leaves_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFW_MAX_QUEUED_TOKENS", "100000")
    reports = new_reports(tmp_path, max_json_values=1_000_000)
    reports.add_engine_end(end())
    reports.finish()
    assert json.loads(written(tmp_path)["report.json"])["settings"]["max_json_values"] == 1_000_000


def test_a_disk_that_hangs_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_go_on = threading.Event()
    monkeypatch.setattr(CrashFolder, "write", lambda *_: may_go_on.wait(20))
    reports = new_reports(tmp_path)
    for _ in range(2):
        reports.add_engine_end(end())  # would not return if it waited
    reports.finish(timeout_s=0.01)
    assert "the last one is still being written" in caplog.text
    may_go_on.set()
    reports.finish()


def test_an_unwritable_folder_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    reports = new_reports(tmp_path / "file")
    reports.add_engine_end(end())
    reports.finish()
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"No crash report could be written to {tmp_path / 'file'}: ")


@pytest.mark.parametrize(
    ("error", "is_reported"),
    [(ConfigError("a wrong setting"), False), (PluginError("it ended the server"), True), (OSError(5), True)],
)
def test_errors_for_the_user_are_not_reported(tmp_path: Path, error: Exception, is_reported: bool) -> None:
    server = ServerConfig(served_model_name="m", crash_reports=str(tmp_path))
    with pytest.raises(type(error)), reporting(ENGINE, server):
        raise error
    assert bool(CrashFolder(tmp_path).reports()) is is_reported


def test_reports_can_be_turned_off(tmp_path: Path) -> None:
    server = ServerConfig(served_model_name="m", storage=str(tmp_path), crash_reports="none")
    with reporting(ENGINE, server) as reports:
        assert reports is None
    assert list(tmp_path.iterdir()) == []
