"""Commands go on beside a package whose metadata are damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    about = tmp_path / "junk-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: junk\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[console_scripts]\nfoo bar\n")
    return tmp_path


def command(packages: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llmfw.api", *args],
        env=os.environ | {"PYTHONPATH": str(packages)} | env,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize("args", [["plugins"], ["--help"], ["serve", "--help"]])
def test_commands_warn_of_damaged_packages_once(damaged: Path, args: list[str]) -> None:
    done = command(damaged, *args)
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert line.startswith(f"warning: package junk 1.0 ({damaged}/junk-1.0.dist-info) is damaged: ")


def test_doctor_calls_damaged_packages_a_problem(damaged: Path) -> None:
    done = command(damaged, "plugins", "doctor", "--json", LLMFW_PLUGINS="policies")
    assert done.returncode == 1
    problems = [each["text"] for each in json.loads(done.stdout)["findings"] if each["level"] == "problem"]
    assert any("package junk 1.0" in text for text in problems)


@pytest.mark.torch
def test_a_template_file_is_found_beside_damage(damaged: Path) -> None:
    template = damaged / "t.jinja"
    template.write_text("{{ messages }}")
    done = command(damaged, "serve", "--chat-template", str(template), "--show-config")
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_torch_is_imported_beside_damaged_packages(damaged: Path) -> None:
    code = "from llmfw.core.plugin.plugins import load_plugins; load_plugins(); import torch._dynamo"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(damaged)}, check=True)
