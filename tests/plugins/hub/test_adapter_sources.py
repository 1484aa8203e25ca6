"""The adapter sources `folder` and `hub-cache`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.testing import AdapterSourceTests
from llmfw.core.testing.adapter_sources import FILES, write_adapter
from llmfw.plugins.hub.cached_adapters import CachedAdapters
from llmfw.plugins.hub.folder_adapters import FolderAdapters


def in_folder(path: Path) -> FolderAdapters:
    return FolderAdapters(FolderAdapters.Options(path=str(path)))


class TestFolder(AdapterSourceTests):
    @pytest.fixture
    def source(self, tmp_path: Path) -> FolderAdapters:
        write_adapter(tmp_path / "root" / "team" / "sql-2.1")
        return in_folder(tmp_path / "root")

    @pytest.fixture
    def name(self) -> str:
        return "team/sql-2.1"

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path / "root")


def test_the_kit_leaves_folders_alone(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """`llmfw check` may run on a folder that is in use, and run again."""
    write_adapter(tmp_path / "root" / "sql")
    before = sorted(tmp_path.rglob("*"))
    for _ in range(2):
        kit, source = AdapterSourceTests(), in_folder(tmp_path / "root")
        kit.test_folders_are_in_the_root(source, "sql", str(tmp_path / "root"), tmp_path_factory)
        assert sorted(tmp_path.rglob("*")) == before


class TestHubCache(AdapterSourceTests):
    @pytest.fixture
    def source(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CachedAdapters:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
        save_in_cache(tmp_path / "hub", "Org/sql-adapter")
        return CachedAdapters(CachedAdapters.Options())

    @pytest.fixture
    def name(self) -> str:
        return "Org/sql-adapter"

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return str(tmp_path / "hub")


def save_in_cache(cache: Path, name: str, files: tuple[str, ...] = FILES) -> None:
    """Write an adapter as the hub's library does: links in a folder of the commit, to files named by hashes."""
    repo, commit = cache / f"models--{name.replace('/', '--')}", "a" * 40
    snapshot = repo / "snapshots" / commit
    for folder in (snapshot, repo / "refs", repo / "blobs"):
        folder.mkdir(parents=True, exist_ok=True)
    (repo / "refs" / "main").write_text(commit)
    for file in files:
        (repo / "blobs" / file.upper()).write_bytes(b"{}")
        (snapshot / file).symlink_to(f"../../blobs/{file.upper()}")


def test_folders_without_both_files_are_not_found(tmp_path: Path) -> None:
    write_adapter(tmp_path / "whole")
    write_adapter(tmp_path / "half")
    (tmp_path / "half" / FILES[1]).unlink()
    (tmp_path / "ring").mkdir()
    for file in FILES:
        (tmp_path / "ring" / file).symlink_to(file)
    source = in_folder(tmp_path)
    assert [source.find(name) for name in ("half", "ring", "none")] == [None] * 3
    assert source.find("whole") == str(tmp_path / "whole")


def test_new_folders_are_found_at_once(tmp_path: Path) -> None:
    source = in_folder(tmp_path)
    assert source.find("new") is None
    write_adapter(tmp_path / "new")
    assert source.find("new") == str(tmp_path / "new")


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    write_adapter(tmp_path / "real" / "sql")
    (tmp_path / "link").symlink_to("real")
    assert in_folder(tmp_path / "link").find("sql") == str(tmp_path / "real" / "sql")


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"adapter_source\.path is '.*none', which is not a folder"):
        in_folder(tmp_path / "none")


def test_incomplete_downloads_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    save_in_cache(tmp_path, "org/half", FILES[:1])
    assert CachedAdapters(CachedAdapters.Options()).find("org/half") is None


def test_sources_are_found_by_name() -> None:
    registry = load_plugins().registry
    assert registry.find("adapter_source", "folder").load() is FolderAdapters
    assert registry.find("adapter_source", "hub-cache").load() is CachedAdapters
