"""The other project that is called `llmfw` is noticed, whether or not its files can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import llmfw_engine
import pytest

import llmfw.api


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A folder with the other project, as pip installs it."""
    about, package = tmp_path / "llmfw-0.1.1.dist-info", tmp_path / "llmfw"
    about.mkdir()
    package.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: llmfw\nVersion: 0.1.1\n")
    (package / "__init__.py").write_text("raise ImportError('something else')\n")
    return tmp_path


def test_the_other_project_is_reported_in_one_line(other: Path) -> None:
    code = "import sys, llmfw_engine; sys.argv[1:] = ['--version']; llmfw_engine.main()"
    environment = os.environ | {"PYTHONPATH": str(other)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: the package llmfw 0.1.1 is installed; it is not this project")
    assert "pip uninstall --yes llmfw llmfw-engine" in line


def test_without_the_other_project_the_command_runs() -> None:
    assert llmfw_engine.clash() is None
    done = subprocess.run(
        [sys.executable, "-m", "llmfw_engine", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("llmfw, version ")


INTERRUPTED = """
import builtins, os, signal, sys
import llmfw_engine

plain, at, handler = builtins.__import__, sys.argv[1], sys.argv[2]

def importing(name, *args, **kwargs):
    if name == at:
        os.kill(os.getpid(), signal.SIGINT)
    return plain(name, *args, **kwargs)

if handler == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
builtins.__import__, sys.argv[1:] = importing, ["--version"]
llmfw_engine.main()
"""


def interrupted(module: str, handler: str) -> tuple[int, str]:
    """Run `llmfw --version` with a SIGINT as it imports a module; return its exit code and standard error.

    The module is that of this checkout: an editable install keeps a copy of it, which may be older.
    """
    environment = os.environ | {"PYTHONPATH": str(Path(llmfw.api.__file__).parents[2])}
    command = [sys.executable, "-c", INTERRUPTED, module, handler]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("module", ["importlib.metadata", "llmfw.api.cli", "click"])
def test_ctrl_c_while_it_imports_is_one_line(module: str) -> None:
    assert interrupted(module, "default") == (130, "\nStopped by Ctrl-C\n")
    assert interrupted(module, "ignored") == (0, "")
