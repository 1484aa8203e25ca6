"""A model that is one file is described by the weight loader of its suffix."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.core.base.errors import ComponentError, ModelError
from llmfw.core.plugin.model_name import ResolvedModel, resolve_model
from llmfw.core.plugin.registry import Entry, Registry

from ...doubles.raw_weights import RawWeights


class One(RawWeights):
    """Describes files *.one."""

    @classmethod
    def describe(cls, file: Path, folder: Path) -> None:
        if "faulty" in file.name:
            raise KeyError("vocabulary")
        if "empty" not in file.name:
            (folder / "config.json").write_text("{}")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "llmfw" / "models"


def resolved(path: Path) -> ResolvedModel:
    kinds = {"one": One, "raw": RawWeights}
    entries = [
        Entry("weight_loader", name, f"{kind.__module__}:{kind.__name__}", "tests", "llmfw-tests", "1")
        for name, kind in kinds.items()
    ]
    return resolve_model(str(path), Registry(entries))


@pytest.mark.parametrize("given", ["models/A.one", "models"])
def test_a_file_becomes_a_linked_folder(tmp_path: Path, given: str) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "A.one").write_text("weights")
    (tmp_path / "models" / "readme.raw").touch()
    found = resolved(tmp_path / given)
    assert found.served_name == "A"
    assert (Path(found.path) / "A.one").read_text() == "weights"


def test_several_files_are_refused(tmp_path: Path) -> None:
    for name in ("a.one", "b.one"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"holds 2 models \(a\.one, b\.one\); give the file"):
        resolved(tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"), [("faulty.one", "describe.*KeyError"), ("empty.one", "wrote no config.json")]
)
def test_a_faulty_loader_is_named(tmp_path: Path, cache: Path, name: str, expected: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ComponentError, match=f"'one' of plugin 'tests'.*{expected}"):
        resolved(tmp_path / name)
    assert not list(cache.iterdir())


def test_loaders_of_folders_describe_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.raw").touch()
    with pytest.raises(ModelError, match="is a file; give the folder"):
        resolved(tmp_path / "a.raw")
    with pytest.raises(ModelError, match=r"no config\.json in"):
        resolved(tmp_path)
