"""The rules that keep the shape: who imports whom, how large things are, what starts without torch."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from llmfw.api.cli import COMMANDS
from llmfw.core.about import DISTRIBUTION

ROOT = Path(__file__).parents[1]
FOLDERS = ("core", "plugins", "api")
MAX_FILE = 400
MAX_ROOM = {
    "": 3500,
    "parts": 300,
    "client": 1700,
    "engine": 3500,
    "modeling": 2200,
    "sampling": 600,
    "logits": 600,
    "cache": 1500,
    "kv": 450,
    "scheduling": 3150,
    "speculation": 400,
    "reception": 600,
    "isolation": 600,
    "embedding": 900,
    "device": 700,
    "tokenization": 300,
    "quantization": 450,
    "imports": 350,
    "settings": 100,
    "grammars": 1100,
}
"""Lines in each room of core, half of them docstrings and signatures; past this, look for the missing room."""
LIGHT_COMMANDS = (
    "--version",
    "--help",
    "plugins",
    "plugins --json",
    "plugins doctor --help",
    "serve --help",
    "serve --show-config",
    "serve --help-part policy.lpm",
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
)
HEAVY = {"torch", "transformers", "litestar", "prometheus_client"}
NEED_NO_NUMPY = (
    "--version",
    "--help",
    "plugins --json",
    "serve --help",
    "simulate --help",
    "plan demo --device h100",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
STANDALONE = "llmfw_engine.py"
"""It is installed as a module of its own, outside any package, and so has no relative imports."""
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def home_of(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the room that a module belongs to: ("core",), ("api",) or ("plugins", name)."""
    return parts[:2] if parts[0] == "plugins" else parts[:1]


def imported(path: Path) -> Iterator[tuple[int, bool, tuple[str, ...]]]:
    """Yield line, whether it is relative, and the module's parts below llmfw, of each import of ours in a file."""
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            yield node.lineno, True, (*base, *(node.module or "").split("."))
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
            for name in names:
                top, *rest = name.split(".")
                if top == "llmfw" and rest:
                    yield node.lineno, False, tuple(rest)
                elif top in FOLDERS:
                    yield node.lineno, False, ("bare", name)


def complaints(path: Path) -> Iterator[str]:
    """Yield what is wrong with a file's imports."""
    home = home_of(path.relative_to(ROOT).parts)
    for line, relative, target in imported(path):
        where = f"{path.relative_to(ROOT)}:{line}"
        if target[0] == "bare":
            yield f"{where} imports {target[1]!r} by its bare name: a second copy of llmfw.{target[1]}"
        elif path.name == STANDALONE:
            continue
        elif relative and home_of(target) != home:
            yield f"{where} climbs out of {'/'.join(home)} by a relative import"
        elif not relative and home_of(target) == home:
            yield f"{where} imports from its own folder by an absolute name"
        elif not relative and target[0] != "core":
            yield f"{where} imports llmfw.{'.'.join(target)}; {home[0]} may import llmfw.core only"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_from_api_and_plugins_to_core(path):
    assert list(complaints(path)) == []


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("core/x.py", "from llmfw.api import cli"),
        ("core/x.py", "import llmfw.core.errors"),
        ("core/engine/x.py", "from ...plugins import bench"),
        ("core/x.py", "from core import errors"),
        ("plugins/one/x.py", "from ..two import y"),
        ("plugins/one/x.py", "from llmfw.plugins.two import y"),
        ("plugins/one/x.py", "from .. import two"),
        ("api/x.py", "import llmfw.plugins.bench"),
    ],
)
def test_an_import_in_the_wrong_direction_is_found(tmp_path, monkeypatch, place, line):
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


@pytest.mark.parametrize("room", MAX_ROOM)
def test_each_room_of_core_stays_small(room):
    assert sum(map(num_lines, (ROOT / "core" / room).glob("*.py"))) <= MAX_ROOM[room]


def test_core_has_no_other_rooms():
    rooms = {path.parent.relative_to(ROOT / "core").as_posix() for path in (ROOT / "core").rglob("*.py")}
    assert rooms == {"." if room == "" else room for room in MAX_ROOM} | {"testing"}


def light_modules() -> list[str]:
    """Return the modules of core (without its engine and kit) and of api, as they are imported."""
    light = [
        ROOT / "core" / room
        for room in (
            *("", "parts", "client", "cache", "scheduling", "speculation", "reception", "isolation"),
            *("tokenization", "imports"),
        )
    ]
    found = [path for path in SOURCES if path.parent in light or path.is_relative_to(ROOT / "api")]
    parts = [path.relative_to(ROOT).with_suffix("").parts for path in found]
    return [".".join(("llmfw", *part)).removesuffix(".__init__") for part in parts if part[-1] != "__main__"]


def test_light_modules_import_neither_torch_nor_transformers(fresh_python):
    code = f"import importlib, sys\nfor name in {light_modules()}: importlib.import_module(name)\n"
    found = fresh_python(code + "print(sorted({'torch', 'transformers'} & sys.modules.keys()))")
    assert found == "[]\n"


def test_plugins_are_listed_without_importing_their_parts(fresh_python):
    code = "import sys; from llmfw.core.plugins import load_plugins; plugins = load_plugins()\n"
    code += "[part.missing() for plugin in plugins.loaded for part in plugin.parts]\n"
    assert fresh_python(code + f"print(sorted({HEAVY} & sys.modules.keys()))") == "[]\n"


@pytest.mark.parametrize("line", LIGHT_COMMANDS)
def test_commands_that_compute_nothing_import_nothing_heavy(fresh_python, line):
    code = "import sys; from llmfw.api.cli import build_cli\n"
    code += f"build_cli()({line.split()!r}, prog_name='llmfw', standalone_mode=False)\n"
    printed = fresh_python(code + f"print(sorted({HEAVY} & sys.modules.keys()))")
    assert printed.splitlines()[-1] == "[]"


@pytest.mark.parametrize("line", NEED_NO_NUMPY)
def test_commands_that_only_list_and_help_import_no_numpy_either(fresh_python, line):
    code = "import sys; from llmfw.api.cli import build_cli\n"
    code += f"build_cli()({line.split()!r}, prog_name='llmfw', standalone_mode=False)\n"
    assert fresh_python(code + "print('numpy' in sys.modules)").splitlines()[-1] == "False"


def test_the_list_of_commands_says_what_each_command_says_of_itself():
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
        ("serve --help", 1.5),
        ("plugins --json", 2.5),  # reads the sources of all parts, for their options
    ],
)
def test_the_command_line_starts_in_little_more_than_its_libraries(line, times, ten_plugins):
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


def test_the_installed_entry_points_are_those_of_pyproject():
    installed = {
        point.name: point.value for point in distribution(DISTRIBUTION).entry_points if point.group == "llmfw"
    }
    assert installed == PROJECT["entry-points"]["llmfw"], "run `pip install -e .` again"


def test_the_links_lead_to_the_folders():
    links = {path.name: os.readlink(path) for path in (ROOT / ".links" / "llmfw").iterdir()}
    assert links == {folder: f"../../{folder}" for folder in FOLDERS}
    assert os.readlink(ROOT / ".links" / "llmfw_engine.py") == "../api/llmfw_engine.py"
