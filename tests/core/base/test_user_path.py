"""A path that cannot be meant is one line, and shows no password."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.user_path import storage_folder, user_path


def test_home_folders_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert user_path("~/x", "--uds") == storage_folder("~/x") == Path("/home/ann/x")


def test_unknown_users_are_one_line() -> None:
    with pytest.raises(ConfigError, match="--uds '~nosuchuser/x': no home folder of '~nosuchuser' is known"):
        user_path("~nosuchuser/x", "--uds")


@pytest.mark.parametrize("password", ["secret", "se/cret", "se#cret", "se@cret", "se%2Fcret"])
def test_a_storage_url_is_refused_without_its_password(password: str) -> None:
    with pytest.raises(ConfigError, match="starts with 'postgresql://', and it must be a folder") as caught:
        storage_folder(f"postgresql://ann:{password}@host/db")
    assert "cret" not in str(caught.value)
