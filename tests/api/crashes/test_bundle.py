"""A bundle hides secrets in every file, and its files of JSON stay JSON."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from llmfw.api.crashes.bundle import TOP, Bundle
from llmfw.api.crashes.secrets import Secrets


def packed(folder: Path, text: str) -> str:
    """Return what a bundle holds of a file of JSON."""
    bundle = Bundle(Secrets(["hush-hush", "100000"], {}))
    bundle.add("report.json", text)
    bundle.write(folder / "bundle.tar.gz")
    with tarfile.open(folder / "bundle.tar.gz") as archive:
        file = archive.extractfile(f"{TOP}/report.json")
        assert file is not None
        return file.read().decode()


def test_json_stays_json(tmp_path: Path) -> None:
    assert json.loads(packed(tmp_path, '{"a": 100000, "b": ["hush-hush"]}')) == {"a": 100000, "b": ["***"]}


@pytest.mark.parametrize("depth", [400, 900, 100_000])
def test_deep_files_are_packed_without_secrets(tmp_path: Path, depth: int) -> None:
    text = packed(tmp_path, f'{"[" * depth}"hush-hush"{"]" * depth}')
    assert "***" in text
    assert "hush-hush" not in text


def test_what_is_no_json_is_cleaned_as_text(tmp_path: Path) -> None:
    assert packed(tmp_path, "{ hush-hush") == "{ ***"
