"""`--attention flashinfer` where FlashInfer is not installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.core import ComponentError, load_plugins
from llmfw.core.plugin import registry

MISSING = r"needs flashinfer.*, which is not installed: pip install 'llmfw-engine\[flashinfer\]'$"
ABSENT = "import sys\nsys.modules['flashinfer'] = None\n"


def test_a_missing_package_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_is_installed", lambda module: module != "flashinfer")
    with pytest.raises(ComponentError, match=MISSING):
        load_plugins().registry.find("attention", "flashinfer").load()


@pytest.mark.long
@pytest.mark.slow
def test_a_server_without_it_ends_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ABSENT)  # in the engine's process too
    done = subprocess.run(
        [sys.executable, "-m", "llmfw.api", "serve", "--attention", "flashinfer", "--port", "0"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode != 0
    [error] = [line for line in done.stderr.splitlines() if line.startswith("Error")]
    assert re.search(MISSING, error)
    assert "Traceback" not in done.stderr


def test_auto_skips_it(fresh_python: Callable[..., str]) -> None:
    code = ABSENT + (
        "from llmfw.core.plugin.plugins import load_plugins\n"
        "[entry, *_] = [e for e in load_plugins().registry.entries('attention') if not e.missing()]\n"
        "print(entry.name)\n"
    )
    assert fresh_python(code).strip() != "flashinfer"
