"""The request log has one line for each request that has ended, whatever happens to its file."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from llmfw.core import ConfigError, RequestEnded, RequestEvent
from llmfw.core.testing import RequestObserverTests
from llmfw.core.testing.observers import in_a_thread, interleaved, request_events
from llmfw.plugins.request_log import request_log
from llmfw.plugins.request_log.request_log import FIELDS, Field, RequestLog


def log_to(path: Path | str, **more: Any) -> RequestLog:
    return RequestLog(RequestLog.Options(path=str(path), **more))


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Removed(RequestLog):
    """A log whose file is read and removed after each call."""

    taken = b""

    def observe(self, events: Sequence[RequestEvent]) -> None:
        super().observe(events)
        path = Path(self.options.path)
        if path.exists():
            self.taken += path.read_bytes()
            path.unlink()


class TestRequestLog(RequestObserverTests):
    @pytest.fixture(params=["default", "all fields", "removed", "stdout"])
    def observer(self, request: pytest.FixtureRequest, tmp_path: Path) -> RequestLog:
        path = str(tmp_path / "log")
        match request.param:
            case "all fields":
                return log_to(path, fields=get_args(Field))
            case "removed":
                return Removed(RequestLog.Options(path=path))
            case "stdout":
                return RequestLog(RequestLog.Options())
        return log_to(path)

    @pytest.fixture
    def recorded(self, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Callable[[Any], Any]:
        def found(observer: RequestLog) -> list[list[tuple[str, Any]]]:
            """Return all lines as pairs of names and values."""
            text = observer.taken if isinstance(observer, Removed) else b""
            text += b"".join(path.read_bytes() for path in tmp_path.iterdir()) + capsysbinary.readouterr().out
            return [list(json.loads(line).items()) for line in text.splitlines()]

        return found

    @pytest.fixture
    def reference(self, observer: RequestLog) -> Callable[[Sequence[RequestEvent]], Any]:
        return partial(expected_lines, fields=observer.options.fields)


def expected_lines(events: Sequence[RequestEvent], fields: Sequence[str]) -> list[list[tuple[str, Any]]]:
    ends = (event for event in events if isinstance(event, RequestEnded))
    return [[(name, expected_value(end, name)) for name in fields] for end in ends]


def expected_value(end: RequestEnded, name: str) -> Any:
    if name == "time":
        return round(end.at, 3)
    if name == "trace_id":
        return end.started.traceparent.split("-")[1] if end.started.traceparent else ""
    value = getattr(end if hasattr(end, name) else end.started, name)
    return round(value, 6) if name.endswith("_s") and value is not None else value


def test_each_ended_request_has_a_line(tmp_path: Path) -> None:
    in_a_thread(log_to(tmp_path / "log"), [interleaved(50, 0), interleaved(50, 1)])
    lines = lines_of(tmp_path / "log")
    assert sorted(line["id"] for line in lines) == sorted(f"{seed}-{i}" for seed in (0, 1) for i in range(50))
    assert all(tuple(line) == FIELDS for line in lines)


def test_a_line_has_the_request_s_figures(tmp_path: Path) -> None:
    in_a_thread(log_to(tmp_path / "log"), [list(request_events("a", "stop"))])
    assert lines_of(tmp_path / "log") == [
        {
            "time": 1_800_000_001.0,
            "id": "a",
            "tenant": "alice",
            "prompt_tokens": 12,
            "cached_tokens": 4,
            "output_tokens": 7,
            "queued_s": 0.25,
            "first_token_s": 0.5,
            "duration_s": 1.0,
            "finish": "stop",
            "error_kind": "",
        }
    ]


def test_the_fields_can_be_chosen(tmp_path: Path) -> None:
    in_a_thread(
        log_to(tmp_path / "log", fields=("finish", "error", "id")), [list(request_events("a", "error"))]
    )
    assert (tmp_path / "log").read_text() == '{"finish":"error","error":"it failed","id":"a"}\n'


def test_the_client_s_trace_can_be_named(tmp_path: Path) -> None:
    *_, end = request_events("a", "stop")
    assert isinstance(end, RequestEnded)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    started = msgspec.structs.replace(end.started, model="m", traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    log = log_to(tmp_path / "log", fields=("model", "trace_id"))
    in_a_thread(log, [[msgspec.structs.replace(end, started=started), end]])
    assert lines_of(tmp_path / "log") == [
        {"model": "m", "trace_id": trace},
        {"model": "", "trace_id": ""},
    ]


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="prompt"):
        msgspec.convert({"fields": ["prompt"]}, RequestLog.Options)


def test_a_file_that_was_moved_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = log_to(path)
    log.observe(list(request_events("a", "stop")))
    path.rename(tmp_path / "log.1")
    log.observe(list(request_events("b", "stop")))
    log.close()
    assert [line["id"] for line in lines_of(tmp_path / "log.1")] == ["a"]
    assert [line["id"] for line in lines_of(path)] == ["b"]


def test_earlier_lines_are_kept(tmp_path: Path) -> None:
    for id in "ab":
        in_a_thread(log_to(tmp_path / "log"), [list(request_events(id, "stop"))])
    assert [line["id"] for line in lines_of(tmp_path / "log")] == ["a", "b"]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    class Full:
        """A file that takes 30 bytes, and then no more."""

        def __init__(self, path: Path) -> None:
            self.file = open(path, "ab", buffering=0)  # noqa: SIM115
            self.has_taken = False

        def write(self, data: bytes) -> int:
            if self.has_taken:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.has_taken = True
            return self.file.write(data[:30])

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    path = tmp_path / "log"
    log = log_to(path)
    log.observe(list(request_events("a", "stop")))
    log.close()
    log._file = Full(path)  # type: ignore[assignment]
    with pytest.raises(OSError, match="No space"):
        log.observe(list(request_events("b", "stop")))
    log.close()
    log._file = None
    in_a_thread(log, [list(request_events("c", "stop"))])
    assert [line["id"] for line in lines_of(path)] == ["a", "c"]


def test_standard_output_is_the_default(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    in_a_thread(RequestLog(RequestLog.Options()), [list(request_events("a", "stop"))])
    assert json.loads(capfdbinary.readouterr().out)["id"] == "a"


@pytest.mark.parametrize("place", ["missing/log", ""])
def test_an_unusable_path_is_refused_at_start(tmp_path: Path, place: str) -> None:
    path = str(tmp_path / place)
    with pytest.raises(ConfigError, match=rf"request-log cannot write '{re.escape(path)}': "):
        log_to(path)


def test_a_log_without_fields_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no fields"):
        log_to(tmp_path / "log", fields=())


def test_every_field_can_be_chosen() -> None:
    (ended,) = [event for event in request_events("a", "stop") if hasattr(event, "finish")]
    assert tuple(request_log._values(ended)) == request_log.Field.__args__  # type: ignore[attr-defined]
