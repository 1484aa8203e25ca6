"""`llmfw pull` brings what serving reads, whole and checked; `llmfw models` lists it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .stand_in import COMMIT, Hub, hub

WEIGHTS = random.Random(0).randbytes(300_000)
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"p" * 500,
    "onnx/model.onnx": b"o" * 500,
    "original/consolidated.00.pth": b"c" * 500,
    "README.md": b"#",
}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def remote() -> Iterator[Hub]:
    with hub(dict(FILES)) as state:
        yield state


@pytest.fixture
def run(remote: Hub, tmp_path: Path) -> Run:
    """Return a function that runs `pull` or `models` in a process, as the hub's library reads its settings once."""
    environment = {
        **os.environ,
        "HF_HOME": str(tmp_path),
        "HF_ENDPOINT": remote.url,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    environment["HF_HUB_OFFLINE"] = "0"

    code = (
        "from llmfw.api.cli import build_cli\n"
        "from llmfw.plugins.hub.models_command import models\n"
        "from llmfw.plugins.hub.pull_command import pull\n"
        "cli = build_cli()\n"
        "cli.commands |= {'models': models, 'pull': pull}\n"
        "cli()"
    )

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return call


def found(shown: subprocess.CompletedProcess[str]) -> Any:
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def test_a_model_is_pulled_whole_and_listed(remote: Hub, run: Run) -> None:
    pulled = found(run("pull", "org/model", "--json"))
    names = {each.name for each in Path(pulled["folder"]).iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (Path(pulled["folder"]) / "model.safetensors").read_bytes() == WEIGHTS
    assert (pulled["commit"], pulled["checked"], pulled["bytes"]) == (COMMIT, 1, len(WEIGHTS) + 4)
    remote.sent_whole.clear()
    assert "1 of 3 files have a checksum, and match it" in run("pull", "org/model").stdout
    assert remote.sent_whole == []  # all was there
    [listed] = found(run("models", "--json"))
    assert (listed["model"], listed["commit"], listed["folder"]) == ("org/model", COMMIT, pulled["folder"])
    assert run("models").stdout.splitlines()[1].split("\t")[:2] == ["org/model", COMMIT[:12]]


def test_a_damaged_file_is_removed_and_fetched_anew(remote: Hub, run: Run) -> None:
    remote.sent["model.safetensors"] = WEIGHTS[:-1] + b"x"
    shown = run("pull", "org/model")
    assert shown.returncode == 1
    assert "model.safetensors has a SHA-256 that differs from the hub's, and was removed" in shown.stderr
    remote.sent.clear()
    assert found(run("pull", "org/model", "--json"))["checked"] == 1


def test_a_broken_reply_is_asked_for_again(remote: Hub, run: Run) -> None:
    remote.breaks_after = 100_000
    assert found(run("pull", "org/model", "--json"))["checked"] == 1
    assert remote.breaks_after is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["org/absent"], "'org/absent' cannot be looked up on the hub: "),
        (
            ["org/model", "--include", "*.gguf"],
            "org/model has no file '*.gguf'; it has README.md, config.json",
        ),
    ],
)
def test_an_impossible_download_is_one_line(run: Run, arguments: list[str], named: str) -> None:
    shown = run("pull", *arguments)
    assert (shown.returncode, len(shown.stderr.splitlines())) == (1, 1)
    assert named in shown.stderr


def test_an_empty_cache_has_no_models(run: Run) -> None:
    assert found(run("models", "--json")) == []
