"""A peer that cannot be installed says why, now and when it is to be measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from .benchmark_script import benchmark_script


@pytest.fixture(scope="module")
def peer() -> Iterator[ModuleType]:
    with benchmark_script("peers.peer", "peers.catalog") as (module, catalog):
        module.catalog = catalog
        yield module


@pytest.fixture
def home(peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A home in which no environment is made and pip does nothing."""
    monkeypatch.setattr(peer.Home, "pip", lambda *_: None)
    monkeypatch.setattr(peer.sys, "executable", "true")
    (tmp_path / "openvino").mkdir()
    return peer.Home.of("openvino", tmp_path)


def test_a_missing_installation_names_the_command(home):
    assert home.missing() == "it is not installed; `make peers` does that"


def test_an_installation_is_current_for_its_versions(home):
    home.install(lambda _: None)
    assert home.missing() is None
    assert home.is_current
    assert not replace(home, pinned={"packages": ["openvino==0"]}).is_current


def test_a_failed_command_s_error_is_kept(peer, home):
    def compile_it(home):
        home.run(["sh", "-c", "echo begun; echo 'x.c: error: no such thing'; echo ended; exit 3"])

    with pytest.raises(peer.CannotInstallError, match=r"failed: x\.c: error: no such thing"):
        home.install(compile_it)
    assert "no such thing" in home.missing()
    assert not home.is_current


def test_a_successful_retry_clears_the_reason(peer, home):
    def refuse(_):
        raise peer.CannotInstallError("no cmake")

    with pytest.raises(peer.CannotInstallError):
        home.install(refuse)
    home.install(lambda _: None)
    assert home.missing() is None


def test_every_peer_has_pinned_versions_and_an_installer(peer):
    catalog = peer.catalog
    homes = {each.home for name, each in catalog.CATALOG.items() if name not in catalog.OURS.values()}
    assert homes == set(catalog.INSTALLERS)
    for name in homes:
        assert all("==" in package for package in peer.Home.of(name, Path()).pinned["packages"])
