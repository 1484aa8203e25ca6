"""Runs the conformance tests of an installed component, and reports the outcome of each promise (`verdict`).

Runs pytest in this process on a generated file, isolated from any project's settings, plugins and folders.
The tests are in `core.testing.installed`. The generated file imports them, so that pytest can rewrite their
assertions.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from llmfw.core.base.described import described, message_of
from llmfw.core.base.errors import LLMFWError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.base.user_cache import user_cache

from .verdict import Promise, Verdict

_FILE = """from llmfw.core.testing.installed import conformance_class

TestInstalledComponent = conformance_class({kind!r}, {name!r}, {options!r}, {fixtures!r})
"""
_NOISE = ("Use -v", "...Full output", "Drill down")
_DRAWN = re.compile(r"^[E| ]*(Failing test case|Falsifying example): ", re.MULTILINE)
MAX_GIST = 12  # lines


class OvertimeError(BaseException):
    """A test did not end in time.

    Derived from BaseException, because the component under test might catch every Exception.
    """


def run_check(
    kind: str,
    name: str,
    options: Mapping[str, OptionValue],
    fixtures: Mapping[str, Any],
    *,
    home: Path,
    timeout: float,
    show: Callable[[Promise], None],
    tell: Callable[[str], None] = lambda promise: None,
) -> Verdict:
    """Run the conformance tests of a component, and return the results.

    Args:
        kind, name: kind and full name of the component.
        options: options of the component, "kind.key" → value.
        fixtures: values that the tests need, by the name of the fixture.
        home: folder of the component's source, to find the line that failed.
        timeout: maximum number of seconds of one test.
        show: called with each `Promise` (the results of one test function) after its last case.
        tell: called with the sentence of a promise before each case of the promise.
    """
    start = time.monotonic()
    listener = _Listener(home, timeout, show, tell)
    with tempfile.TemporaryDirectory(prefix="llmfw-check-") as folder, _isolated():
        file = Path(
            folder, f"test_component_{uuid.uuid4().hex}.py"
        )  # unique: a process can import a module name only once
        code = _FILE.format(kind=kind, name=name, options=dict(options), fixtures=dict(fixtures))
        file.write_text(code, "utf-8")
        Path(folder, "pytest.ini").write_text("[pytest]\n", "utf-8")
        arguments = ["-c", f"{folder}/pytest.ini", "--rootdir", folder, "--basetemp", f"{folder}/tmp"]
        arguments += ["-p", "no:cacheprovider", "--capture=sys", "--import-mode=importlib", "-q", str(file)]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            ended = pytest.main(arguments, plugins=[listener])
    listener.close()
    if listener.error is None and ended == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if listener.error is None and ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        listener.error = RuntimeError(f"pytest ended with code {ended}: {said.getvalue()[-2000:]}")
    return Verdict(listener.promises, listener.error, time.monotonic() - start)


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Hide pytest's environment variables, and keep hypothesis' files in the user's cache.

    Among these files are tables of characters, which take a second to compute.
    """
    before = dict(os.environ)
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ.pop("PYTEST_PLUGINS", None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(user_cache() / "hypothesis")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class _Listener:
    """A pytest plugin that collects the results of the tests as promises, one per test function."""

    def __init__(
        self, home: Path, timeout: float, show: Callable[[Promise], None], tell: Callable[[str], None]
    ) -> None:
        self.promises: list[Promise] = []
        self.error: BaseException | None = None
        self._home = home
        self._timeout = timeout
        self._show = show
        self._tell = tell

    def close(self) -> None:
        """Show the last promise. Call this when all tests have ended."""
        if self.promises:
            self._show(self.promises[-1])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self._tell(Promise(_test_name(item.nodeid)).sentence)
        with self._time_limit():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        with self._time_limit():
            return (yield)

    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector, call: Any) -> None:
        if isinstance(node, pytest.Collector):
            self.error = call.excinfo.value
        elif self.promises and self.promises[-1].where is None:
            self.promises[-1].where = _where(call.excinfo, self._home)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        promise = self._promise(_test_name(report.nodeid))
        if report.passed:
            promise.kept += 1
        elif report.skipped:
            promise.skipped += 1
            if not promise.broken and not promise.reason:
                promise.reason = str(report.longrepr[2]).removeprefix("Skipped: ")  # type: ignore[index]
        else:
            promise.broken += 1
            if promise.broken == 1:
                promise.traceback = report.longreprtext
                promise.reason = _error_message(report.longreprtext)

    def _promise(self, name: str) -> Promise:
        if not self.promises or self.promises[-1].name != name:
            self.close()
            self.promises.append(Promise(name))
        return self.promises[-1]

    @contextlib.contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Raise OvertimeError if the block takes longer than the timeout.

        Needs SIGALRM; no effect without it.
        """
        if not hasattr(signal, "SIGALRM"):
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            raise OvertimeError(f"after {self._timeout:g} s (--timeout) it had not come to an end")

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, self._timeout)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def _test_name(nodeid: str) -> str:
    """Return the name of the test function in pytest's id of a case."""
    return nodeid.rpartition("::")[2].partition("[")[0]


def _error_message(traceback: str) -> str:
    """Return the error message in pytest's report, without source code and without hypothesis' arguments."""
    traceback = _DRAWN.split(traceback)[0]
    lines = [
        line.lstrip("E| ").rstrip() for line in traceback.splitlines() if line.lstrip("| ").startswith("E ")
    ]
    lines = [
        line for line in lines if line and not line.startswith(_NOISE)
    ] or traceback.strip().splitlines()[-1:]
    return "\n".join(lines if len(lines) <= MAX_GIST else [*lines[:MAX_GIST], "…"])


def _where(excinfo: pytest.ExceptionInfo[BaseException], home: Path) -> str | None:
    """Return the file and line of the innermost call inside the component's folder; None if there is none."""
    inside = [entry for entry in excinfo.traceback if Path(entry.path).is_relative_to(home)]
    return f"{inside[-1].path}:{inside[-1].lineno + 1}" if inside else None


def explained(error: BaseException) -> str:
    """Return the text of an error that prevented all tests, on one line."""
    text = message_of(error) if isinstance(error, LLMFWError) else described(error)
    return " ".join(text.split())
