"""The commands of docs/operations.md are right, and leave no file out that a later one reads."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from llmfw.api.access.key_file import read_keys

from .command_line import FOLDER, settings_of

PAGE = (FOLDER.parent / "operations.md").read_text()


def blocks(text: str) -> list[list[str]]:
    """Return the commands of each block, without the output that some of them show."""
    found = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [[line[2:] for line in block.splitlines() if line.startswith("$ ")] for block in found]


def test_each_llmfw_command_parses() -> None:
    lines = [line for block in blocks(PAGE) for line in block if line.startswith("llmfw serve")]
    assert len(lines) >= 4
    for line in lines:
        assert settings_of(shlex.split(line)[1:])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_key_files_that_it_makes_are_read(tmp_path: Path) -> None:
    [*making, serving] = blocks(PAGE.partition("\n## API keys\n")[2])[0]
    subprocess.run(["bash", "-euc", "\n".join(making)], cwd=tmp_path, check=True, timeout=60)
    words = shlex.split(serving)
    files = {
        option: tmp_path / words[words.index(option) + 1]
        for option in ("--api-key-file", "--admin-api-key-file")
    }
    keys, admin = (read_keys(path, named=option == "--api-key-file") for option, path in files.items())
    assert (len(keys.keys), len(admin.keys), keys.warnings, admin.warnings) == (1, 1, (), ())
