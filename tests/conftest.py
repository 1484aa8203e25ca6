"""What all tests share: packages with plugins, installed for one test, and fresh interpreters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

# OpenMP's threads would spin while they wait for each other, and ten tests at once would stand still.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would the commands that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Install = Callable[..., Path]


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `gpu` where there is no CUDA device."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked:
        import torch

        if not torch.cuda.is_available():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
