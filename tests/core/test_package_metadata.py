"""What a package calls itself is read as importlib.metadata reads it."""

from __future__ import annotations

from importlib.metadata import PathDistribution, distributions

from llmfw.core.package_metadata import name_and_version


def test_names_and_versions_are_those_of_importlib_metadata():
    found = [each for each in distributions() if each.metadata["Name"]]
    assert len(found) > 20
    assert all(name_and_version(each) == (each.name, each.version) for each in found)


def test_what_stands_below_the_header_is_not_read(tmp_path):
    (tmp_path / "METADATA").write_text("Version: 1.2\n\nName: other\nVersion: 3\n")
    assert name_and_version(PathDistribution(tmp_path)) == ("unknown package", "1.2")
