"""The rules that keep the shape: who imports whom, how large things are, what starts without torch."""

from __future__ import annotations

import importlib
import os
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from llmfw.api.cli import COMMANDS
from llmfw.core.base.about import DISTRIBUTION

ROOT = Path(__file__).parents[1]
with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(ROOT / "docs")
    house = importlib.import_module("house")
FOLDERS = ("core", "plugins", "api")
MAX_FILE = 400
MAX_WORDS = 8
"""Of the name of a test, after `test_`; its docstring says the rest."""
MAX_TOP = 6
"""Files at the tops of api and core/model."""
CORE_LAYERS = (
    "base",
    "terminal",
    "imports",
    "ipc",
    "interfaces",
    "kernels",
    "plugin",
    "schedule",
    "model",
    "step",
    "grammars",
    "media",
    "engine",
    "client",
    "testing",
)
"""The folders of core from the lowest: each imports only those before it."""
LIGHT_COMMANDS = (
    "--version",
    "--help",
    "plugins",
    "plugins --json",
    "plugins doctor --help",
    "serve --help",
    "serve --show-config",
    "serve --help-component policy.lpm",
    "chat --help",
    "complete --help",
    "batch --help",
    "batch submit --help",
    "batch run --help",
    "simulate --help",
    "cache pin --help",
    "policy set --help",
    "trace --help",
    "plan demo --device h100",
    "plugin new --help",
    "check --help",
    "debug bundle --help",
)
LIGHT = (
    "api",
    *(
        f"core/{room}"
        for room in (
            *(
                "base",
                "terminal",
                "imports",
                "ipc",
                "plugin",
                "interfaces",
                "schedule",
                "grammars",
                "media",
                "client",
            ),
        )
    ),
    "core/engine/admission",
)
NEED_TORCH = {
    *(
        "forward_batch.py",
        "kv_dtype.py",
        "kv_storage.py",
        "packed_states.py",
        "state_storage.py",
    )
}
"""Of `interfaces`: what attention backends are given."""
HEAVY = {"torch", "transformers", "litestar", "prometheus_client"}
NEED_NO_NUMPY = (
    "--version",
    "--help",
    "plugins --json",
    "serve --help",
    "simulate --help",
    "plan demo --device h100",
)
PLACES_OF_TESTS = (
    "tests/**/*.py",
    "docs/**/*.py",
    "core/testing/*.py",
    "api/commands/scaffold/templates/*/test.txt",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
STANDALONE = "llmfw_engine.py"
"""It is installed as a module of its own, outside any package, and so has no relative imports."""
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def home_of(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the house that a module belongs to: ("core",), ("api",) or ("plugins", name)."""
    return parts[:2] if parts[0] == "plugins" else parts[:1]


def room_of(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the room that a module belongs to: ("core", "step"), ("api", "chat"), ("plugins", name)."""
    return parts[:2] if ROOT.joinpath(*parts[:2]).is_dir() else parts[:1]


def complaints(path: Path) -> Iterator[str]:
    """Yield what is wrong with a file's imports."""
    parts = path.relative_to(ROOT).parts
    home, room = home_of(parts), room_of(parts[:-1])
    for line, relative, target in house.imported(path, ROOT):
        where = f"{path.relative_to(ROOT)}:{line}"
        if target[0] == "bare":
            yield f"{where} imports {target[1]!r} by its bare name: a second copy of llmfw.{target[1]}"
        elif path.name == STANDALONE:
            continue
        elif home_of(target) != home and (relative or target[0] != "core"):
            yield f"{where} imports llmfw.{'.'.join(target)}; {home[0]} may import llmfw.core only, by its absolute name"
        elif len(room) > 1 and relative and room_of(target) != room:
            yield f"{where} climbs out of {'/'.join(room)} by a relative import"
        elif not relative and room_of(target) == room:
            yield f"{where} imports from its own room by an absolute name"


@pytest.mark.parametrize("folder", ["core", "api"])
def test_folders_have_no_import_cycles(folder):
    assert len(list(house.rooms(folder))) > 10  # a ring raises CycleError, which names it


def test_each_layer_of_core_imports_lower_ones():
    upward = [
        f"{'/'.join(room)} imports {'/'.join(target)}"
        for room, targets in house.graph("core").items()
        for target in targets
        if len(room) > 1 and (len(target) == 1 or CORE_LAYERS.index(target[1]) > CORE_LAYERS.index(room[1]))
    ]
    assert upward == []
    assert {path.name for path in (ROOT / "core").iterdir() if (path / "__init__.py").is_file()} == set(
        CORE_LAYERS
    )


def test_the_top_has_few_files():
    assert [path.name for path in (ROOT / "core").glob("*.py")] == ["__init__.py"]
    assert all(len(list((ROOT / top).glob("*.py"))) <= MAX_TOP for top in ("api", "core/model"))


@pytest.mark.parametrize(
    "place", sorted({path.parent for path in SOURCES}), ids=lambda place: str(place.relative_to(ROOT))
)
def test_imports_go_from_api_and_plugins_to_core(place):
    files = [path for path in SOURCES if path.parent == place]
    assert [complaint for path in files for complaint in complaints(path)] == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("core/x.py", "from llmfw.api import cli"),
        ("core/base/x.py", "import llmfw.core.base.errors"),
        ("core/base/x.py", "from ..step import y"),
        ("api/chat/x.py", "from ..text import y"),
        ("core/engine/x.py", "from ...plugins import bench"),
        ("core/x.py", "from core import errors"),
        ("plugins/one/x.py", "from ..two import y"),
        ("plugins/one/x.py", "from llmfw.plugins.two import y"),
        ("plugins/one/x.py", "from .. import two"),
        ("api/x.py", "import llmfw.plugins.bench"),
    ],
)
def test_an_import_in_the_wrong_direction_is_detected(tmp_path, monkeypatch, place, line):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text(line)
    assert len(list(complaints(path))) == 1


def num_lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def test_every_file_fits_into_the_head():
    large = {str(path.relative_to(ROOT)): num_lines(path) for path in SOURCES if num_lines(path) > MAX_FILE}
    assert large == {}


def light_modules() -> list[str]:
    """Return the modules of core (without its engine and kit) and of api, as they are imported."""
    found = [
        path
        for path in SOURCES
        if path.name not in NEED_TORCH and any(path.is_relative_to(ROOT / folder) for folder in LIGHT)
    ]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in found]
    return [".".join(("llmfw", *part)).removesuffix(".__init__") for part in parts if part[-1] != "__main__"]


def test_light_modules_import_neither_torch_nor_transformers(fresh_python):
    code = f"import importlib, sys\nfor name in {light_modules()}: importlib.import_module(name)\n"
    found = fresh_python(code + "print(sorted({'torch', 'transformers'} & sys.modules.keys()))")
    assert found == "[]\n"


def test_plugins_are_listed_without_importing_components(fresh_python):
    code = "import sys; from llmfw.core.plugin.plugins import load_plugins; plugins = load_plugins()\n"
    code += "[part.missing() for plugin in plugins.loaded for part in plugin.components]\n"
    assert fresh_python(code + f"print(sorted({HEAVY} & sys.modules.keys()))") == "[]\n"


@pytest.mark.parametrize(
    ("lines", "unwanted"), [(LIGHT_COMMANDS, HEAVY), (NEED_NO_NUMPY, {"numpy"})], ids=["light", "help"]
)
def test_light_commands_import_no_heavy_packages(fresh_python, lines, unwanted):
    """All in one interpreter: what a command imports, the next one would show, too."""
    code = f"import sys; from llmfw.api.cli import build_cli\nfor line in {lines!r}:\n"
    code += "    build_cli()(line.split(), prog_name='llmfw', standalone_mode=False)\n"
    code += f"    assert not (found := {unwanted} & sys.modules.keys()), (line, found)\n"
    fresh_python(code)


def test_command_lists_show_each_command_s_help():
    own = {command.name: command for command in COMMANDS}
    found = {name: command.command() for name, command in own.items()}
    assert {name: command.name for name, command in found.items()} == {name: name for name in own}
    for name, command in own.items():
        assert command.get_short_help_str(200) == found[name].get_short_help_str(200)


def cpu_seconds(*command: str, env: dict[str, str] | None = None) -> float:
    """Return the CPU time of a command, which other load on the machine changes less than the time on the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


LIBRARIES = (
    "import click, msgspec, pluggy; from importlib.metadata import entry_points; entry_points(group='llmfw')"
)


@pytest.fixture
def ten_plugins(install_plugin) -> dict[str, str]:
    """Return an environment in which ten more packages are installed, with a policy and a command each."""
    source = (
        "import click\n@hookimpl\ndef register_schedule_policies(register): register('p{0}', 'm:P')\n"
        "@hookimpl\ndef register_commands(cli): cli.command('c{0}')(lambda: click.echo('{0}'))\n"
    )
    folders = [install_plugin(f"ours{i}", source.format(i), f"package{i}") for i in range(10)]
    for metadata in (path for folder in folders for path in folder.glob("*.dist-info/METADATA")):
        metadata.write_text(f"{metadata.read_text()}Requires-Dist: llmfw-engine>=0.1,<0.3\n\nWhat it is.\n")
    # What pip installs is compiled; here it is at the first start.
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": ""}


@pytest.mark.parametrize(
    ("line", "times"),
    [
        ("import llmfw.core", 1.5),
        ("--version", 1.5),
        ("--help", 1.5),
        ("serve --help", 2),  # loads all plugins, and formats a hundred options
        ("plugins --json", 3.5),  # reads the sources of 70 modules, for their options
    ],
)
def test_the_command_line_starts_quickly(line, times, ten_plugins):
    code = line if "import" in line else "from llmfw.api.cli import main; main()"
    command = (sys.executable, "-c", code, *([] if "import" in line else line.split()))
    libraries = (sys.executable, "-c", LIBRARIES)
    # A ratio, because machines differ. Other processes make either slower at times: one good pair in many is enough.
    pairs = (
        (cpu_seconds(*command, env=ten_plugins), cpu_seconds(*libraries, env=ten_plugins)) for _ in range(40)
    )
    assert any(ours < times * bare for ours, bare in pairs)


def test_the_plugins_of_a_start_are_listed(ten_plugins):
    command = [sys.executable, "-c", "from llmfw.api.cli import main; main()", "--help"]
    shown = subprocess.run(command, env=ten_plugins, capture_output=True, text=True, check=True).stdout
    assert all(f"\n  c{i}" in shown for i in range(10)), shown


def test_entry_points_are_the_folders_under_plugins():
    folders = {path.parent.name for path in (ROOT / "plugins").glob("*/__init__.py")}
    declared = PROJECT["entry-points"]["llmfw"]
    assert declared == {name: f"llmfw.plugins.{name}" for name in folders}


def test_installed_entry_points_match_pyproject():
    installed = {
        point.name: point.value for point in distribution(DISTRIBUTION).entry_points if point.group == "llmfw"
    }
    assert installed == PROJECT["entry-points"]["llmfw"], "run `pip install -e .` again"


def test_names_of_tests_have_eight_words():
    files = [path for place in PLACES_OF_TESTS for path in ROOT.glob(place)]
    names = {name for file in files for name in re.findall(r"\bdef test_(\w+)\(", file.read_text("utf-8"))}
    assert len(names) > 2000
    assert sorted(name for name in names if name.count("_") >= MAX_WORDS) == []


def test_the_links_lead_to_the_folders():
    links = {path.name: os.readlink(path) for path in (ROOT / ".links" / "llmfw").iterdir()}
    assert links == {folder: f"../../{folder}" for folder in FOLDERS}
    assert os.readlink(ROOT / ".links" / "llmfw_engine.py") == "../api/llmfw_engine.py"
