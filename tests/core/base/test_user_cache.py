"""The folder of files that can be written again."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.core.base.user_cache import user_cache


def test_the_environment_chooses_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert user_cache() == tmp_path / "caches" / "llmfw"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert user_cache() == tmp_path / "home" / ".cache" / "llmfw"
