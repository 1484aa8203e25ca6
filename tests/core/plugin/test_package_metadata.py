"""What a package calls itself is read as importlib.metadata reads it."""

from __future__ import annotations

from importlib.metadata import PathDistribution, distributions, version

import pytest

from llmfw.core.base.about import version_of
from llmfw.core.plugin.package_metadata import name_and_version, without_plugins
from llmfw.core.plugin.requirement import reason_against


def test_names_and_versions_equal_importlib_metadata():
    found = [each for each in distributions() if each.metadata["Name"]]
    assert len(found) > 20
    assert all(name_and_version(each) == (each.name, each.version) for each in found)


def test_text_below_the_metadata_header_is_ignored(tmp_path):
    (tmp_path / "METADATA").write_text("Version: 1.2\n\nName: other\nVersion: 3\n")
    assert name_and_version(PathDistribution(tmp_path)) == ("unknown package", "1.2")


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        ("llmfw-engine<0.3,>=0.1", True),
        ("LLMFW_engine[testing]", True),
        ("llmfw-engine-load", False),
        ("llmfw", False),
        ('llmfw-engine; extra == "x"', False),
    ],
)
def test_packages_lacking_an_entry_point_are_found(tmp_path, monkeypatch, needs, told):
    about = tmp_path / "llmfw_forgot-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: llmfw-forgot\nVersion: 1.0\nRequires-Dist: {needs}\n\nText\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert ("llmfw-forgot 1.0" in without_plugins("llmfw")) is told
    (about / "entry_points.txt").write_text("[llmfw]\nforgot = llmfw_forgot\n")
    assert "llmfw-forgot 1.0" not in without_plugins("llmfw")


def test_a_package_s_metadata_are_read_once(tmp_path):
    """All plugins of a package ask for its name and requirements; other objects of the package are read anew."""
    (tmp_path / "METADATA").write_text("Name: ours\nVersion: 1\n")
    package = PathDistribution(tmp_path)
    assert name_and_version(package) == ("ours", "1")
    (tmp_path / "METADATA").write_text("Name: ours\nVersion: 2\n")
    assert name_and_version(package) == ("ours", "1")
    assert reason_against(package) is None
    assert name_and_version(PathDistribution(tmp_path)) == ("ours", "2")


def test_versions_are_those_of_importlib_metadata():
    assert version_of("msgspec") == version("msgspec")
    assert version_of("no-such-package") is None
