"""A package whose metadata is damaged is named in one line, and all others work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmfw.core.base.errors import PluginError
from llmfw.core.plugin.plugins import load_plugins

POLICY = """
@hookimpl
def register_schedule_policies(register): register("mine", f"{__name__}:Mine")
"""
METADATA = b"Metadata-Version: 2.1\nName: junk\nVersion: 1.0\n"
DAMAGED = {
    "bad UTF-8": b"\xff\xfe[llmfw]\n",
    "no value": b"[console_scripts]\nfoo bar\n",
    "no value in our group": b"[llmfw]\njunk\n",
}


@pytest.fixture(autouse=True)
def restored_environment(monkeypatch):
    """Undo what `load_plugins` sets for torch and triton."""
    for name in ("TORCH_DEVICE_BACKEND_AUTOLOAD", "TRITON_BACKENDS_IN_TREE"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
        monkeypatch.delenv(name)


@pytest.fixture
def lay_out(tmp_path, monkeypatch):
    """Return a function that makes a folder of metadata, with these files, on `sys.path`."""

    def make(name: str = "junk-1.0.dist-info", **files: bytes) -> Path:
        about = tmp_path / "packages" / name
        about.mkdir(parents=True)
        for file, content in files.items():
            (about / file.replace("_txt", ".txt")).write_bytes(content)
        monkeypatch.syspath_prepend(about.parent)
        return about

    return make


@pytest.mark.parametrize("entry_points", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("metadata", [METADATA, b"\xff\xfe", b""])
def test_damaged_entry_points_are_one_warning(lay_out, install_plugin, entry_points, metadata):
    about = lay_out(METADATA=metadata, entry_points_txt=entry_points)
    install_plugin("ours", POLICY)
    plugins = load_plugins()
    [warning] = plugins.warnings
    assert f"package junk 1.0 ({about})" in warning
    assert "entry_points.txt" in warning
    assert "\n" not in warning
    assert {"mine", "lpm"} <= set(plugins.registry.names("policy"))


def test_strict_mode_refuses_damaged_entry_points(lay_out, monkeypatch):
    lay_out(METADATA=METADATA, entry_points_txt=DAMAGED["bad UTF-8"])
    monkeypatch.setenv("LLMFW_STRICT_PLUGINS", "1")
    with pytest.raises(PluginError, match=r"package junk 1\.0"):
        load_plugins()


def test_an_unknown_name_mentions_damaged_packages(lay_out):
    lay_out(METADATA=METADATA, entry_points_txt=DAMAGED["bad UTF-8"])
    with pytest.raises(Exception, match=r"package junk 1\.0 .* is damaged"):
        load_plugins().registry.find("policy", "quite_another")


@pytest.mark.parametrize("metadata", [b"\xff\xfe", b"Metadata-Version: 2.1\n", b""])
@pytest.mark.parametrize("name", ["junk-1.0.dist-info", "junk-1.0.egg-info"])
def test_unreadable_metadata_affects_no_other_package(lay_out, metadata, name):
    lay_out(name, METADATA=metadata, **{"PKG-INFO": metadata})
    plugins = load_plugins()
    assert not plugins.warnings
    with pytest.raises(Exception, match="unknown policy 'no_such'"):
        plugins.registry.find("policy", "no_such")


@pytest.mark.parametrize("name", ["junk-1.0.dist-info", "junk-1.0.egg-info"])
def test_files_in_place_of_folders_are_ignored(tmp_path, monkeypatch, name):
    (tmp_path / name).write_bytes(b"\xff\xfe")
    monkeypatch.syspath_prepend(tmp_path)
    assert "lpm" in load_plugins().registry.names("policy")
    with pytest.raises(Exception, match="unknown policy 'no_such'"):
        load_plugins().registry.find("policy", "no_such")


def test_a_plugin_with_unreadable_metadata_is_refused(install_plugin):
    folder = install_plugin("ours", POLICY)
    (folder / "foreign-1.2.dist-info" / "METADATA").write_bytes(b"Name: \xff\xfe\n")
    [broken] = load_plugins().broken
    assert (broken.name, broken.distribution, broken.version) == ("ours", "foreign", "1.2")
    assert "METADATA cannot be read" in broken.reason


@pytest.mark.parametrize("metadata", ["Metadata-Version: 2.1\n", None])
def test_a_plugin_without_a_package_name_is_reported(install_plugin, metadata):
    folder = install_plugin("ours", POLICY)
    about = folder / "foreign-1.2.dist-info"
    (about / "METADATA").unlink()
    if metadata:
        (about / "METADATA").write_text(metadata)
    plugins = load_plugins()
    assert [f"package foreign 1.2 ({about}) has no Name" in warning for warning in plugins.warnings] == [True]
    assert plugins.registry.find("policy", "mine").distribution == "foreign"


def test_two_versions_are_one_warning(install_plugin):
    """The first on `sys.path` is used, as Python imports it."""
    unused, used = (install_plugin("ours", POLICY) for _ in range(2))
    (used / "foreign-1.2.dist-info" / "METADATA").write_text("Name: foreign\nVersion: 2.0\n")
    plugins = load_plugins()
    [warning] = plugins.warnings
    assert f"foreign 2.0 ({used}" in warning.partition(" is used")[0]
    assert f"foreign 1.2 ({unused}" in warning.partition(" is used")[2]
    assert not plugins.broken
    assert plugins.registry.find("policy", "mine").version == "2.0"


def test_equal_copies_of_a_package_are_not_reported(install_plugin):
    for _ in range(2):
        install_plugin("ours", POLICY)
    plugins = load_plugins()
    assert (plugins.warnings, plugins.broken) == ([], [])
