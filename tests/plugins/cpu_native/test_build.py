"""The library is built once, by any number of processes, and where it cannot be built torch serves."""

from __future__ import annotations

import ctypes
import importlib.resources
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmfw.core.base.errors import ComponentError
from llmfw.plugins.cpu_native.attention_structs import why_no_attention
from llmfw.plugins.cpu_native.build import BuildError, Unit, build_library, find_compiler
from llmfw.plugins.cpu_native.library import load_attention, load_library, load_quantized, why_not

from ...core.engine.generation.running import build_engine, run

DEMO = str(importlib.resources.files("llmfw.plugins.model_demo") / "weights")

TINY = 'extern "C" int answer() { return 42; }\n'
HERE = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": "/nowhere"}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder of two small files, so that building takes no time."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "one.cpp").write_text(TINY)
    (folder / "two.cpp").write_text('#include "two.h"\nint other() { return OTHER; }\n')
    (folder / "two.h").write_text("#define OTHER 7\n")
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return HERE | {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_the_library_is_rebuilt_on_changes_only(sources: Path, environment: dict[str, str]) -> None:
    first = build_library((), environment, sources)
    made = first.stat().st_mtime_ns
    assert build_library((), environment, sources) == first
    assert first.stat().st_mtime_ns == made
    assert build_library(("-DNDEBUG",), environment, sources) != first
    (sources / "two.h").write_text("#define OTHER 8\n")
    assert build_library((), environment, sources) != first
    assert {path.suffix for path in first.parent.iterdir()} == {".so"}


def test_two_processes_may_build_concurrently(sources: Path, environment: dict[str, str]) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from llmfw.plugins.cpu_native.build import build_library\n"
        f"print(build_library((), {environment!r}, Path({str(sources)!r})))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    one, other = (process.communicate()[0] for process in running)
    assert one == other
    assert Path(one.strip()).exists()


def test_concurrent_builds_wait_for_the_first(
    sources: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    log, compiler = tmp_path / "log", tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    with ThreadPoolExecutor() as threads:
        found = set(
            threads.map(lambda _: build_library((), environment | {"CXX": str(compiler)}, sources), range(4))
        )
    assert len(found) == 1
    assert sum(" -c " in line for line in log.read_text().splitlines()) == 2


def test_a_killed_build_s_files_are_removed(sources: Path, environment: dict[str, str]) -> None:
    left = Path(environment["XDG_CACHE_HOME"], "llmfw", "building-x")
    left.mkdir(parents=True)
    (left / "0.o").write_text("")
    path = build_library((), environment, sources)
    assert list(left.parent.iterdir()) == [path]


def test_files_of_a_unit_are_compiled_together(sources: Path, environment: dict[str, str]) -> None:
    (sources / "one.cpp").write_text("namespace { int shared() { return 42; } }\n" + TINY)
    (sources / "two.cpp").write_text('extern "C" int twice() { return 2 * shared(); }\n')
    path = build_library((), environment, sources, [Unit(("one.cpp", "two.cpp"), ("-O0",))])
    assert ctypes.CDLL(str(path)).twice() == 84


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"CXX": "/nonexistent/c++"}, "CXX names '/nonexistent/c\\+\\+', which is not there.*apt install"),
        ({"PATH": "/nonexistent"}, "there is no C\\+\\+ compiler .*apt install g\\+\\+"),
        ({"XDG_CACHE_HOME": "/proc/nowhere"}, "cannot be built in /proc/nowhere"),
    ],
)
def test_a_missing_tool_names_the_remedy(
    sources: Path, environment: dict[str, str], changes: dict[str, str], said: str
) -> None:
    with pytest.raises(BuildError, match=said):
        build_library((), environment | changes, sources)


def test_compiler_errors_are_one_line(sources: Path, environment: dict[str, str]) -> None:
    (sources / "one.cpp").write_text("int broken( { return 1; }\n")
    with pytest.raises(BuildError, match=r"one.cpp:1:.*error.*") as raised:
        build_library((), environment, sources)
    assert "\n" not in str(raised.value)
    assert list(Path(environment["XDG_CACHE_HOME"], "llmfw").iterdir()) == []


def test_cxx_may_contain_arguments() -> None:
    assert find_compiler(HERE | {"CXX": "sh -x"}) == ["sh", "-x"]


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine where nothing was built and nothing can be."""
    monkeypatch.setenv("CXX", "/nonexistent")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for remembered in (load_library, load_attention, load_quantized, why_not, why_no_attention):
        remembered.cache_clear()
    yield
    for remembered in (load_library, load_attention, load_quantized, why_not, why_no_attention):
        remembered.cache_clear()


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_torch_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    engine = build_engine(DEMO)
    [said] = [record.getMessage() for record in caplog.records if "cpu-native" in record.getMessage()]
    assert said.startswith(
        "Module passes that do not apply: cpu-native (CXX names '/nonexistent', which is not there"
    )
    assert engine.info.module_passes == ()
    assert len(run(engine, [[5, 6, 7]])[0]) > 0


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_named_pass_fails() -> None:
    with pytest.raises(ComponentError, match=r"cpu-native.* cannot be applied: CXX names"):
        build_engine(DEMO, module_passes="cpu-native")
