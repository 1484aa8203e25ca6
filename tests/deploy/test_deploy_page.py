"""The commands of docs/deploy.md are right."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from llmfw.api.access.key_file import read_keys

from .command_line import FOLDER, settings_of

ROOT = FOLDER.parents[1]
PAGE = (FOLDER.parent / "deploy.md").read_text()


def commands() -> list[str]:
    """Return the commands of the page, each as one line."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    assert all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def test_each_llmfw_command_parses() -> None:
    lines = [match[1] for command in commands() if (match := re.search(r"(?:^|\s)llmfw (serve .*)", command))]
    assert len(lines) == 2
    for line in lines:
        settings = settings_of(shlex.split(line))
        assert settings["max_connections_per_address"] == settings["max_connections"]


def test_each_named_file_exists() -> None:
    words = [word for command in commands() for word in re.split(r"[ =:]", command)]
    files = {word.removeprefix("./") for word in words if "docs/deploy" in word and "secrets" not in word}
    assert len(files) >= 5
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_key_files_that_it_makes_are_read(tmp_path: Path) -> None:
    section = PAGE.partition("\n## Keys\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    script = re.sub(r"^\$ ", "", block, flags=re.MULTILINE)
    (tmp_path / "docs" / "deploy").mkdir(parents=True)
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True, timeout=60)
    folder = tmp_path / "docs" / "deploy" / "secrets"
    assert "docs/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    keys, admin = read_keys(folder / "keys", named=True), read_keys(folder / "admin", named=False)
    assert (len(keys.keys), len(admin.keys), keys.warnings, admin.warnings) == (2, 1, (), ())
    assert (folder / "keys").read_text().splitlines()[1].split()[
        0
    ] == f"prometheus={(folder / 'metrics').read_text()}"
