"""Conformance tests of the `AdapterSource` interface."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from llmfw.core.base.adapter_name import what_is_wrong
from llmfw.core.base.errors import OverloadedError, RequestError
from llmfw.core.interfaces.adapter_source import AdapterSource

from .declared import declared

FILES = ("adapter_config.json", "adapter_model.safetensors")
HOSTILE = (
    "..", ".", "../..", "../../../../../../etc", "a/../../b", "a/../b", "./a", "a/.", "a//b", "~", "~root", "~/x",
    "..\\..\\x", "C:\\x", "C:x", "\\\\host\\share", "%2e%2e/x", "..%2fx", "file:///etc", "http://127.0.0.1/x", "*", "?", "[a]",
    "${HOME}", "$(id)", "`id`", "-rf", "--help", "con", "nul", "__proto__", "constructor", "é漢🙂", "e\u0301", "a" * 256, "a/" * 127 + "a",
    "a;b", "a|b", "a&b", "'", '"', "a b", "@", "@main", "x@..", "#", "a#b", "a:b", "proc/self", "dev/stdin",
)  # fmt: skip
"""Names that clients may send, and that no source should have."""
MAX_KEPT = 3_000
"""Blocks of memory that a source may keep of 10,000 names; a source that keeps each has more than 10,000."""


class AdapterSourceTests:
    """Conformance tests of an adapter source.

    Derive from this class and override the fixtures `source` and `name`.
    """

    needed: ClassVar = {"name": (str, "the name of an adapter that the source has")}

    @pytest.fixture
    def source(self) -> AdapterSource:
        """Return the source under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture source")

    @pytest.fixture
    def name(self) -> str:
        """Return the name of an adapter that the source has."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture name")

    @pytest.fixture
    def root(self, source: AdapterSource) -> str | None:
        """Return the folder that holds all adapters of the source; None: there is no such folder."""
        return declared(source, "root", None)

    def test_folders_are_absolute_and_hold_both_files(self, source: AdapterSource, name: str) -> None:
        found = source.find(name)
        assert type(found) is str, f"find({name!r}) returned {found!r}; it must return the adapter's folder"
        assert Path(found).is_absolute() is True, f"{found!r} is not an absolute path"
        missing = [file for file in FILES if not (Path(found) / file).is_file()]
        assert missing == [], f"{found!r} lacks {missing}"

    def test_an_adapter_is_found_again(self, source: AdapterSource, name: str) -> None:
        assert source.find(name) == source.find(name)

    def test_unknown_names_give_none(self, source: AdapterSource) -> None:
        for other in ("llmfw-no-such-adapter", "llmfw-no-such/adapter"):
            assert source.find(other) is None

    def test_hostile_names_find_nothing(self, source: AdapterSource) -> None:
        """A source may also refuse such a name."""
        found = {other: folder for other in HOSTILE if (folder := _asked(source, other)) is not None}
        assert found == {}

    def test_paths_from_an_adapter_find_nothing(self, source: AdapterSource, name: str) -> None:
        """Each adapter has one name. With a second one, it would be loaded twice."""
        folder = source.find(name)
        assert folder is not None
        others = (
            f"./{name}", f"{name}/.", f"x/../{name}", f"{name}/../{name.rpartition('/')[2]}", f"{name}//.", folder,
            folder.lstrip("/"), f"file://{folder}", f"{name}/{FILES[0]}", name.swapcase(), name.replace("/", "//"),
            f"{name}/../../{Path(folder).parent.name}/{Path(folder).name}",
        )  # fmt: skip
        usable = [other for other in others if other != name and not what_is_wrong(other)]
        found = {other: folder for other in usable if (folder := _asked(source, other)) is not None}
        assert found == {}

    def test_folders_are_in_the_root(
        self,
        source: AdapterSource,
        name: str,
        root: str | None,
        tmp_path_factory: pytest.TempPathFactory,
    ) -> None:
        """A link in the root could lead to files that the server can read, and clients must not.

        The root may be one that is in use: the links are removed at the end.
        """
        if root is None:
            pytest.skip(
                "the source does not have the capability root (the folder that holds all its adapters)"
            )
        outside = tmp_path_factory.mktemp("outside")
        write_adapter(outside)
        with links_in(Path(root), outside) as names:
            for found in (source.find(name), *(_asked(source, each) for each in names)):
                if found is not None:
                    places = [(Path(found) / file).resolve() for file in FILES]
                    assert [each for each in places if not each.is_relative_to(Path(root).resolve())] == []

    def test_several_threads_may_ask(self, source: AdapterSource, name: str) -> None:
        expected = source.find(name)
        with ThreadPoolExecutor(8) as threads:
            asked = [name if i % 2 else f"llmfw-no-such-{i}" for i in range(64)]
            found = list(threads.map(source.find, asked))
        assert found == [expected if i % 2 else None for i in range(64)]

    def test_nothing_is_kept_of_unknown_names(self, source: AdapterSource) -> None:
        counts = []
        for turn in range(3):
            for i in range(10_000):
                _asked(source, f"llmfw-no-such-{turn}-{i}")
            gc.collect()
            counts.append(sys.getallocatedblocks())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after 10,000 further names"


def write_adapter(folder: Path) -> None:
    """Write a folder with the names of an adapter's files. No model can load them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILES[0]).write_text(json.dumps({"peft_type": "LORA"}))
    (folder / FILES[1]).write_bytes(b"")


@contextlib.contextmanager
def links_in(root: Path, outside: Path) -> Iterator[list[str]]:
    """Context manager in which a root has a link to a folder, and a folder of links to its files.

    Yields:
        The names of both.
    """
    linked, folder = (root / f"llmfw-{kind}-{os.getpid()}" for kind in ("link", "linked-files"))
    try:
        linked.symlink_to(outside)
        folder.mkdir()
        for file in FILES:
            (folder / file).symlink_to(outside / file)
        yield [linked.name, folder.name]
    finally:
        linked.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def _asked(source: AdapterSource, name: str) -> str | None:
    """Return the folder of a name; None if the source has none or refuses the name."""
    assert not what_is_wrong(name)
    try:
        return source.find(name)
    except (RequestError, OverloadedError):
        return None
