"""The README's examples run as they stand, and print what it says they print."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
PLUGIN = re.findall(r"```python\n(# pyproject.toml of your package.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port on which the command that `make serve` runs serves the demo model."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "llmfw.api", "serve", "--port", str(port)])
    try:
        for _ in range(120):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.5)
        yield port
    finally:
        server.terminate()
        assert server.wait(20) == 0


@pytest.mark.long
@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_readme_examples_print_the_shown_output(code: str, output: str, port: int) -> None:
    code = code.replace("30000", str(port))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == output, done.stderr


def test_the_ten_line_plugin_orders_by_remaining_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shortest.py").write_text(PLUGIN[0])
    about = tmp_path / "shortest-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shortest\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[llmfw]\nshortest = shortest\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = load_plugins().registry
    config = EngineConfig(model=resolve_model("demo", registry).path, policy="shortest")
    assert build_generation_engine(config, registry).info.policy == "shortest"
