"""What all tests share: packages with plugins, installed for one test, and fresh interpreters."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
from hypothesis import settings

from llmfw.core.imports.postponed import postpone

from .brief_reports import BriefReports, are_enough
from .garbage import freeze_if_many
from .length import LENGTH
from .processor_time import MAX_S, ProcessorTime

settings.load_profile(LENGTH)

# OpenMP's threads would spin while they wait for each other, and ten tests at once would stand still.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would the commands that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Install = Callable[..., Path]

NEED_TORCH = re.compile(r"No module named '(torch|transformers)[.']")
HAS_TORCH = importlib.util.find_spec("torch") is not None


def pytest_configure(config: pytest.Config) -> None:
    """Measure the tests' processor time, and let the few tests of Anthropic's client import it: that takes a second."""
    postpone("anthropic", _mock_name=None)  # pytest asks for this name of all that it finds in a file
    config.pluginmanager.register(ProcessorTime(MAX_S))
    if are_enough(config):
        config.pluginmanager.register(BriefReports())


@pytest.fixture(autouse=True)
def same_handlers() -> Iterator[None]:
    """Fail a test that changes how this process handles Ctrl-C or SIGTERM: later tests would run otherwise than alone."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture(scope="session", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let HTTP clients know a single certificate authority: to read them all takes 25 ms for each client."""
    first, end, _ = Path(certifi.where()).read_text("utf-8").partition("-----END CERTIFICATE-----")
    path = tmp_path_factory.mktemp("authority") / "one.pem"
    path.write_text(first + end + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with one plugin, as pip would lay it out.

    Its arguments: the plugin's name, the source of the declaring module (where `__name__` is the module's name),
    and the distribution's name. It returns the folder, which is on `sys.path` until the test ends.
    """

    def install(name: str, source: str, distribution: str = "foreign") -> Path:
        module = f"plugin_{uuid.uuid4().hex}"
        folder = tmp_path / module
        about = folder / f"{distribution}-1.2.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text("from llmfw.core import hookimpl\n" + source)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
        (about / "entry_points.txt").write_text(f"[llmfw]\n{name} = {module}\n")
        monkeypatch.syspath_prepend(folder)
        return folder

    return install


@pytest.fixture
def fresh_python() -> Callable[..., str]:
    """Return a function that runs code in a new interpreter and returns what it printed."""

    def run(code: str, *path: Path) -> str:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def pytest_collection(session: pytest.Session) -> None:
    """Collect no garbage while tests are collected: nearly all objects stay, and each round looks at more of them."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Take what is there now out of what the garbage collector looks at: thousands of tests, and all modules.

    That includes some garbage: to find it takes a tenth of the time of the collection.
    """
    gc.freeze()
    gc.enable()
    propagate_torch_s_logs()


def propagate_torch_s_logs() -> None:
    """Let torch's 57 loggers pass records on to the root: pytest attaches two handlers to each that does not, three times a test."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "torch" and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Freeze what the tests of a file leave behind, such as modules: its fixtures are gone by now."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        freeze_if_many()
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no CUDA device, and those marked `torch` where torch is not installed."""
    for item in items:
        if not HAS_TORCH and item.get_closest_marker("torch"):
            item.add_marker(pytest.mark.skip(reason="needs torch, which is not installed"))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Skip files that need torch where it is not installed: `make test-light` runs the others on any Python."""
    report = yield
    if not HAS_TORCH and report.failed and (found := NEED_TORCH.search(report.longreprtext)):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: needs {found[1]}, which is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Skip tests that need torch where it is not installed."""
    try:
        return (yield)
    except ModuleNotFoundError as error:
        if HAS_TORCH or not NEED_TORCH.search(str(error)):
            raise
        pytest.skip(f"needs {error.name}, which is not installed")
