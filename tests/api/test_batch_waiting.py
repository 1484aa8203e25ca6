"""What `llmfw batch` makes of a server's answers, also of those that a real one gives only when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.api.commands.batch import wait
from llmfw.api.commands.batch.meter import Rate

from ..doubles.scripted_server import LOST, scripted

STATUS = "GET /v1/batches/batch_1"


def llmfw(*arguments: str) -> Result:
    return CliRunner().invoke(build_cli(), ["batch", *arguments])


def job(status: str, completed: int = 0, failed: int = 0, total: int = 4, **fields: Any) -> dict[str, Any]:
    counts = {"completed": completed, "failed": failed, "total": total}
    return {"id": "batch_1", "object": "batch", "status": status, "request_counts": counts, **fields}


COMPLETED = job("completed", 3, 1, output_file_id="file-o", error_file_id="file-e")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "LONGEST_WAIT_S", 0.01)


def watch(*answers: Any) -> Result:
    with scripted({STATUS: answers}) as server:
        return llmfw("status", "batch_1", "--watch", "--url", server.url)


def test_watching_ends_with_the_results_command() -> None:
    result = watch(job("validating", total=0), job("in_progress", 1), COMPLETED)
    assert result.exit_code == 0
    assert result.stdout.startswith("batch_1: completed\n")
    assert (
        "has completed: 4 of 4 lines, 1 of them failed. Results: llmfw batch results batch_1" in result.stderr
    )
    assert "--output FILE --errors FILE --url http://127.0.0.1" in result.stderr


@pytest.mark.parametrize("trouble", [LOST, (500, "oops"), (503, "busy"), (429, "busy")])
def test_a_temporarily_unreachable_server_is_polled_again(trouble: Any) -> None:
    result = watch(job("in_progress", 1), trouble, trouble, COMPLETED)
    assert result.exit_code == 0
    assert result.stderr.count("trying again for 180 s") == 1


@pytest.mark.parametrize("status", [401, 404])
def test_a_persistent_error_ends_the_waiting(status: int) -> None:
    result = watch(job("in_progress"), (status, "the reason"))
    assert result.exit_code == 1
    assert f"Error: {status} from the server: the reason" in result.stderr


def test_an_unreachable_server_ends_the_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "GIVE_UP_AFTER_S", 0.05)
    result = watch(job("in_progress"), LOST)
    assert result.exit_code == 1
    assert "RemoteProtocolError" in result.stderr
    assert "The batch goes on when the server does" in result.stderr


@pytest.mark.parametrize("status", ["expired", "cancelled"])
def test_an_unwanted_end_is_exit_code_1(status: str) -> None:
    result = watch(job(status, 2, 2, output_file_id="file-o"))
    assert result.exit_code == 1
    assert (
        f"{status}: 2 of 4 lines have a result, 2 failed or did not run. Results: llmfw batch results batch_1 --output FILE"
        in result.stderr
    )


def test_progress_counts_no_line_that_did_not_run() -> None:
    ended = job("cancelled", 6, 2994, 3000)
    answers = {"POST /v1/batches/batch_1/cancel": [job("cancelling", 5, 0, 3000)], STATUS: [ended]}
    listed = {"object": "list", "data": [ended], "has_more": False}
    with scripted({**answers, "GET /v1/batches": [listed]}) as server:
        waited = llmfw("cancel", "batch_1", "--wait", "--url", server.url)
        table = llmfw("list", "--url", server.url)
    assert waited.stderr.splitlines() == [
        "cancelled: 6 of 3000 lines done",
        "batch_1 was cancelled: 6 of 3000 lines have a result, 2994 failed or did not run.",
    ]
    assert table.stdout.splitlines()[1].split("\t")[1:4] == ["cancelled", "6/3000", ""]


def test_the_first_errors_are_printed_safely() -> None:
    """By line, without control characters."""
    errors = [{"line": n, "message": f"line\x1b[2J {n}", "code": "bad"} for n in range(1, 15)]
    result = watch(job("failed", errors={"object": "list", "data": errors}))
    assert result.exit_code == 1
    assert "line 10: line [2J 10 (bad)" in result.stdout
    assert "line 11" not in result.stdout
    assert "and 4 more" in result.stdout
    assert "has failed: its file cannot be run" in result.stderr


def test_ctrl_c_says_the_batch_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wait.time, "sleep", interrupt)
    result = watch(job("in_progress", 1))
    assert result.exit_code == 130
    assert "batch_1 goes on in the server. To see it: llmfw batch status batch_1 --watch" in result.stderr
    assert "to end it: llmfw batch cancel batch_1" in result.stderr


def test_an_unexpected_reply_questions_the_url() -> None:
    for answer in (b"<h1>hello</h1>", {"hello": 1}, b"[]"):
        with scripted({STATUS: [answer]}) as server:
            result = llmfw("status", "batch_1", "--url", server.url)
        assert "does not answer as a server of batches; is --url right?" in result.stderr


def write(path: Path, **fields: Any) -> str:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {}} | fields
    path.write_text(json.dumps(line) + "\n")
    return str(path)


@pytest.mark.parametrize("status", [401, 413, 507])
def test_a_refused_upload_is_one_line(tmp_path: Path, status: int) -> None:
    with scripted({"POST /v1/files": [(status, "the reason")]}) as server:
        result = llmfw("submit", write(tmp_path / "in.jsonl"), "--url", server.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {status} from the server: the reason")
    assert result.stderr.count("\n") == 1


def test_a_refused_batch_leaves_no_file(tmp_path: Path) -> None:
    script = {
        "POST /v1/files": [{"id": "file-1"}],
        "POST /v1/batches": [(400, "no")],
        "DELETE /v1/files/file-1": [{"id": "file-1", "deleted": True}],
    }
    with scripted(script) as server:
        result = llmfw("submit", write(tmp_path / "in.jsonl"), "--url", server.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert server.asked[-1] == "DELETE /v1/files/file-1"


def test_a_lost_connection_names_the_uploaded_file(tmp_path: Path) -> None:
    with scripted({"POST /v1/files": [{"id": "file-1"}], "POST /v1/batches": [LOST]}) as server:
        result = llmfw("submit", write(tmp_path / "in.jsonl"), "--url", server.url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "whether there is a batch of file-1 is not known: see llmfw batch list" in result.stderr


def test_options_are_sent_in_openai_s_form(tmp_path: Path) -> None:
    script = {"POST /v1/files": [{"id": "file-1"}], "POST /v1/batches": [job("validating")]}
    options = ["--metadata", "a=b=c", "--metadata", "d=", "--output-expires-after", "3600", "--window", "24h"]
    with scripted(script) as server:
        result = llmfw(
            "submit", write(tmp_path / "in.jsonl", url="/embeddings"), "--url", server.url, *options
        )
    assert (result.exit_code, result.stdout) == (0, "batch_1\n")
    assert b'name="purpose"\r\n\r\nbatch\r\n' in server.bodies[0]
    assert b'filename="in.jsonl"' in server.bodies[0]
    assert json.loads(server.bodies[1]) == {
        "input_file_id": "file-1",
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
        "metadata": {"a": "b=c", "d": ""},
        "output_expires_after": {"anchor": "created_at", "seconds": 3600},
    }


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("a", "'a' is not key=value"),
        ("=a", "'=a' is not key=value"),
        ("k=2", "'k' is given twice: '1' and '2'"),
    ],
)
def test_invalid_metadata_is_a_usage_error(tmp_path: Path, option: str, message: str) -> None:
    result = llmfw("submit", write(tmp_path / "in.jsonl"), "--metadata", "k=1", "--metadata", option)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    "content", ["", "\n \n", "hello\n", "[]\n", "3\n", '{"url": 3}\n', '{"custom_id": "a"}\n']
)
def test_a_file_without_requests_is_a_usage_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "in.jsonl").write_text(content)
    result = llmfw("submit", str(tmp_path / "in.jsonl"), "--url", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "is not a request of a batch" in result.stderr


def test_an_interrupted_download_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("old")
    script = {STATUS: [COMPLETED], "GET /v1/files/file-o/content": [LOST]}
    with scripted(script) as server:
        result = llmfw("results", "batch_1", "--output", str(tmp_path / "out.jsonl"), "--url", server.url)
    assert result.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    assert (tmp_path / "out.jsonl").read_text() == "old"


def test_a_list_is_fetched_page_by_page() -> None:
    page = {"object": "list", "data": [job("completed") | {"id": f"batch_{n}"} for n in range(100)]}
    with scripted({"GET /v1/batches": [page | {"has_more": True}]}) as server:
        result = llmfw("list", "--limit", "150", "--json", "--url", server.url)
    assert len(json.loads(result.stdout)) == 150
    assert server.asked[1:] == ["GET /v1/batches?limit=50&after=batch_99"]


def test_a_late_cancel_is_exit_code_1() -> None:
    with scripted({"POST /v1/batches/batch_1/cancel": [job("cancelling")], STATUS: [COMPLETED]}) as server:
        result = llmfw("cancel", "batch_1", "--wait", "--url", server.url)
    assert result.exit_code == 1
    assert "batch_1 is completed: 4 of 4 lines, 1 of them failed; it had ended before" in result.stderr


def test_the_rate_covers_the_last_seconds() -> None:
    rate = Rate()
    assert rate.see(0, 100.0) == 0
    assert rate.see(50, 110.0) == 5
    assert [rate.see(50, 110.0 + n) for n in range(1, 60)][-1] == 0
