"""A postponed module runs when it is needed, once, and nobody who uses it sees that it was postponed."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmfw.core.imports.postponed import has_run, postpone, run

RUN_NOTED = "import builtins; builtins.runs = getattr(builtins, 'runs', []) + [__name__]\n"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Make a package `big` with two modules, and return the names of those that ran."""
    folder = tmp_path / "big"
    folder.mkdir()
    (folder / "__init__.py").write_text(RUN_NOTED + "from .one import ONE\nmark = lambda f: 'marked'\n")
    (folder / "one.py").write_text(RUN_NOTED + "ONE = 1\n")
    (folder / "two.py").write_text(RUN_NOTED + "from . import ONE\nTWO = ONE + 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    noted: list[str] = []
    monkeypatch.setattr("builtins.runs", noted, raising=False)
    yield _Noted()
    for name in [name for name in sys.modules if name.partition(".")[0] == "big"]:
        del sys.modules[name]


class _Noted(list[str]):
    """The names so far, whenever it is looked at."""

    def __eq__(self, other: object) -> bool:
        import builtins

        return getattr(builtins, "runs", []) == other

    __hash__ = None  # type: ignore[assignment]


def test_known_names_do_not_run_the_module(runs: list[str]) -> None:
    postpone("big", mark=lambda function: function)
    import big  # type: ignore[import-not-found]

    assert big.mark(len) is len
    assert not has_run("big")
    assert runs == []


def test_other_names_run_the_module_once(runs: list[str]) -> None:
    """Afterwards known names are the module's own."""
    done: list[object] = []
    postpone("big", mark=lambda function: function, then=done.append)
    import big

    assert (big.ONE, big.mark(len)) == (1, "marked")
    assert runs == ["big", "big.one"]
    assert has_run("big")
    assert done == [sys.modules["big"]]


def test_submodules_of_an_index_do_not_run_it(runs: list[str]) -> None:
    postpone("big", has_index=True)
    from big import one  # type: ignore[import-not-found]

    assert one.ONE == 1
    assert runs == ["big.one"]
    from big.two import TWO  # type: ignore[import-not-found]

    assert TWO == 2
    assert runs == ["big.one", "big.two", "big"]


def test_submodules_of_other_packages_run_the_package(runs: list[str]) -> None:
    postpone("big")
    from big.two import TWO

    assert TWO == 2
    assert runs == ["big", "big.one", "big.two"]


def test_a_postponed_submodule_is_imported_without_its_package(runs: list[str]) -> None:
    postpone("big")
    postpone("big.two", TWO="two")
    from big.two import TWO

    assert (TWO, runs == []) == ("two", True)
    assert run("big.two").TWO == 2


def test_imported_and_missing_modules_are_not_postponed(runs: list[str]) -> None:
    import big

    postpone("big", mark=None)
    assert sys.modules["big"] is big
    assert big.mark is not None
    postpone("no_such_module")
    assert "no_such_module" not in sys.modules


def test_inspection_does_not_run_the_module(runs: list[str]) -> None:
    postpone("big")
    module = sys.modules["big"]
    assert (hasattr(module, "__wrapped__"), hasattr(module, "__warningregistry__")) == (False, False)
    assert str(module.__file__).endswith("__init__.py")
    assert runs == []


def test_concurrent_threads_run_the_module_once(runs: list[str]) -> None:
    postpone("big")
    module, found = sys.modules["big"], []
    threads = [threading.Thread(target=lambda: found.append(module.ONE)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [1] * 8
    assert runs == ["big", "big.one"]


def test_named_submodules_come_without_their_package(runs: list[str]) -> None:
    """A function that is named like a submodule is still the function; what was imported is an attribute of the package."""
    with open(f"{sys.path[0]}/big/__init__.py", "a") as file:
        file.write("from . import two\ndef two(): ...\n")
    postpone("big", submodules=("one",))
    from big import one

    assert runs == ["big.one"]
    from big import two

    assert callable(two)
    assert runs == ["big.one", "big", "big.two"]
    assert sys.modules["big"].one is one
