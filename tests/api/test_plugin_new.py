"""`llmfw plugin`: every package that it writes installs, is well formed, and passes its own tests at once."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hatchling.builders.wheel import WheelBuilder

from llmfw.api.cli import build_cli
from llmfw.api.commands.scaffold.kinds import KINDS
from llmfw.core.plugin.hookspecs import HOOK_NAMES

from ..length import LENGTH, WITHOUT_UNUSED

TESTS = Path(__file__).parents[1]
NAMES = {kind: f"my-{kind.replace('_', '-')}" for kind in KINDS}


PAIRS = {
    "sooner": ("logits_processor", "request_field"),
    "larger-first": ("policy", "request_field"),
    "all-three": ("policy", "logits_processor", "request_field"),
}
SEVERAL = ("policy", "command", "attention", "route")


def plugin(*arguments: str) -> Result:
    return CliRunner().invoke(build_cli(), ["plugin", *arguments], prog_name="llmfw")


def plugin_new(*arguments: str) -> Result:
    return plugin("new", *arguments)


def kinds(*names: str) -> list[str]:
    return [text for name in names for text in ("--kind", name)]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one package of each kind, as written."""
    folder = tmp_path_factory.mktemp("packages")
    for kind, name in NAMES.items():
        done = plugin_new(name, "--kind", kind, "--path", str(folder))
        assert done.exit_code == 0, done.output
    for name, chosen in PAIRS.items():
        assert plugin_new(name, *kinds(*chosen), "--path", str(folder)).exit_code == 0
    assert plugin_new("both", *kinds(*SEVERAL), "--path", str(folder)).exit_code == 0
    assert plugin_new("grown", "--kind", "policy", "--path", str(folder)).exit_code == 0
    done = plugin("add", *kinds(*SEVERAL[1:]), "--path", str(folder / "llmfw-grown"))
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def installed(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that all of them are installed into: pip does no more with a wheel without scripts."""
    folder = tmp_path_factory.mktemp("installed")
    for name in (*NAMES.values(), *PAIRS, "both", "grown"):
        for wheel in WheelBuilder(str(packages / f"llmfw-{name}")).build(directory=str(folder / "wheels")):
            zipfile.ZipFile(wheel).extractall(folder)
    return folder


def test_every_kind_has_a_package_template():
    assert set(KINDS) == {*HOOK_NAMES, "command", "route"}


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param((*KINDS, *PAIRS), marks=pytest.mark.long, id="all"),
        ("policy", "tool_parser", "route"),
    ],
)
def test_new_packages_pass_their_tests(chosen: tuple[str, ...], packages: Path, installed: Path):
    # One run for all, and one dtype of three: the import of torch takes longer than most of the tests.
    names = [NAMES.get(kind, kind) for kind in chosen]
    places = [str(packages / f"llmfw-{name}" / "tests") for name in names]
    options = ["-p", "length", "--hypothesis-profile", LENGTH]
    options += WITHOUT_UNUSED
    options += ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", "not bf16 and not fp16"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(packages), *places],
        cwd=packages,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(installed), str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "LLMFW_STRICT_PLUGINS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(TESTS.parent / ".hypothesis"),  # with tables of characters
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 8 * len(chosen)


@pytest.mark.parametrize("name", ["both", "grown"])
def test_a_package_brings_each_of_its_kinds(name: str, installed: Path) -> None:
    show = (
        "from llmfw.core import load_plugins; from sys import argv\n"
        "[plugin] = [each for each in load_plugins().loaded if each.name == argv[1]]\n"
        "print([each.kind for each in plugin.components], len(plugin.commands), len(plugin.routes))"
    )
    done = subprocess.run(
        [sys.executable, "-c", show, name],
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['attention', 'policy'] 1 1\n"


def test_adding_kinds_gives_the_same_package(packages: Path) -> None:
    """Only the README and the description are the author's own by then."""
    grown, both = packages / "llmfw-grown", packages / "llmfw-both"
    texts = {file.relative_to(both): file.read_text("utf-8") for file in both.rglob("*.py")}
    expected = {
        str(place).replace("both", "grown"): text.replace("both", "grown").replace("Both", "Grown")
        for place, text in texts.items()
    }
    assert {str(file.relative_to(grown)): file.read_text("utf-8") for file in grown.rglob("*.py")} == expected


@pytest.fixture
def package(tmp_path: Path) -> Path:
    assert plugin_new("quick", "--kind", "policy", "--path", str(tmp_path)).exit_code == 0
    return tmp_path / "llmfw-quick"


def test_an_author_s_own_declarations_stay(package: Path) -> None:
    module = package / "llmfw_quick" / "__init__.py"
    own = "import os  # mine\n\nfrom llmfw.core import hookimpl  # all of it\n\nX = os.sep  # keep\n"
    module.write_text(own)
    assert plugin("add", "--kind", "route", "--path", str(package)).exit_code == 0
    for line in own.splitlines():
        assert line in module.read_text().splitlines()
    assert {"X", "register_routes", "RegisterRoute"} <= set(runpy.run_path(str(module)))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (
            lambda folder: (folder / "llmfw_quick" / "route.py").write_text("mine"),
            "route.py is there already",
        ),
        (
            lambda folder: (folder / "llmfw_quick" / "__init__.py").write_text("def"),
            "is not valid Python: line 1",
        ),
        (lambda folder: (folder / "llmfw_quick" / "__init__.py").unlink(), "cannot be read"),
        (lambda folder: (folder / "pyproject.toml").unlink(), "give the folder of your package with --path"),
        (
            lambda folder: (folder / "pyproject.toml").write_text("[project]"),
            "has 0 entry points in the group",
        ),
        (lambda folder: (folder / "pyproject.toml").write_text("["), "cannot be read"),
        (lambda folder: (folder / "pyproject.toml").write_text("project = 1"), "has 0 entry points in the"),
        (
            lambda folder: (folder / "pyproject.toml").write_text("[project]\nentry-points = [1]"),
            "has 0 entry points in the",
        ),
        (lambda folder: (folder / "llmfw_quick" / "__init__.py").write_text("\0"), "is not valid Python"),
    ],
)
def test_a_refused_addition_changes_no_file(
    package: Path, spoil: Callable[[Path], object], expected: str
) -> None:
    spoil(package)
    before = {file: file.read_bytes() for file in package.rglob("*") if file.is_file()}
    done = plugin("add", "--kind", "route", "--path", str(package))
    assert done.exit_code == 1
    assert expected in " ".join(done.output.split())
    assert {file: file.read_bytes() for file in package.rglob("*") if file.is_file()} == before


def test_a_kind_that_is_there_is_refused(package: Path) -> None:
    (package / "llmfw_quick" / "policy.py").unlink()
    done = plugin("add", "--kind", "policy", "--path", str(package))
    assert done.exit_code == 1
    assert "it has register_schedule_policies() already; call register a second" in " ".join(
        done.output.split()
    )


def test_a_needed_field_joins_the_package_s_fields(tmp_path: Path) -> None:
    """A logits processor comes with a request field. Added to a package with a field, it joins that one's hook."""
    assert plugin_new("grown", *kinds("request_field"), "--path", str(tmp_path)).exit_code == 0
    grown = tmp_path / "llmfw-grown"
    assert plugin("add", *kinds("logits_processor"), "--path", str(grown)).exit_code == 0
    registered: list[str] = []
    module = runpy.run_path(str(grown / "llmfw_grown" / "__init__.py"))
    module["register_request_fields"](lambda field, *_, **__: registered.append(field))
    assert registered == ["grown", "grown_strength"]


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_read_the_package_s_own_field(name: str, packages: Path) -> None:
    """A package with a request field, and a policy or a logits processor, has one field, which the others need."""
    function = name.replace("-", "_")
    needed: dict[str, tuple[str, ...]] = {}

    def register(registered: str, path: str, *, summary: str, needs_fields: tuple[str, ...] = ()) -> None:
        needed[path.partition(".")[2].partition(":")[0]] = needs_fields

    module = runpy.run_path(str(packages / f"llmfw-{name}" / f"llmfw_{function}" / "__init__.py"))
    for hook in [each for each in module if each.startswith("register_")]:
        module[hook](register)
    assert needed == {kind: () if kind == "request_field" else (function,) for kind in PAIRS[name]}


@pytest.mark.long
def test_a_pair_keeps_the_promises_under_check(packages: Path, installed: Path) -> None:
    """`llmfw check` finds what the pair declares: the fields of the policy, and who asks the processor."""
    for kind in ("policy", "logits_processor", "request_field"):
        name = "all_three" if kind == "request_field" else "all-three"
        done = subprocess.run(
            [sys.executable, "-m", "llmfw.api", "check", kind, name],
            cwd=packages,
            env=os.environ | {"PYTHONPATH": f"{installed}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_passes_ruff(packages: Path):
    for command in (["check", "--extend-select", "I,B,UP,SIM"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", str(packages)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_the_project_declares_entry_point_and_requirement(packages: Path):
    for kind, name in NAMES.items():
        project = tomllib.loads((packages / f"llmfw-{name}" / "pyproject.toml").read_text("utf-8"))["project"]
        assert project["name"] == f"llmfw-{name}"
        assert project["entry-points"] == {"llmfw": {name: f"llmfw_my_{kind}"}}
        assert project["dependencies"] == ["llmfw-engine>=0.1,<0.3"]


def test_the_output_names_the_next_commands(tmp_path: Path):
    output = plugin_new("quick", "--kind", "chat-template", "--path", str(tmp_path)).output
    lines = [line.strip() for line in output.splitlines() if line.startswith("  ")]
    folder = tmp_path / "llmfw-quick"
    wanted = [f"cd {folder}", "pip install -e '.[test]' && pytest", "llmfw serve --chat-template quick"]
    assert lines == wanted


@pytest.mark.parametrize("name", ["quick", "llmfw-quick", "llmfw_quick"])
def test_the_package_name_is_accepted(tmp_path: Path, name: str):
    assert plugin_new(name, "--kind", "policy", "--path", str(tmp_path)).exit_code == 0
    assert (tmp_path / "llmfw-quick" / "llmfw_quick" / "policy.py").is_file()


@pytest.mark.parametrize(
    "name", ["", "llmfw-", "4bit", "Ünder", "a b", "../x", "-x", "x-", "a--b", "Big", "a.b"]
)
def test_an_invalid_name_is_refused(tmp_path: Path, name: str):
    done = plugin_new("--kind", "policy", "--path", str(tmp_path), "--", name)
    assert (done.exit_code, list(tmp_path.iterdir())) == (1, [])
    assert repr(name) in done.output


@pytest.mark.parametrize("there", ["file", "folder"])
def test_existing_files_stay_unchanged(tmp_path: Path, there: str):
    place = tmp_path / "llmfw-quick"
    if there == "file":
        place.write_text("mine")
    else:
        place.mkdir()
    done = plugin_new("quick", "--kind", "policy", "--path", str(tmp_path))
    assert done.exit_code == 1
    assert f"{place} is there already" in " ".join(done.output.split())
    assert place.read_text() == "mine" if there == "file" else list(place.iterdir()) == []


@pytest.mark.parametrize("name", ["engine", "llmfw-engine"])
def test_our_own_package_name_is_refused(tmp_path: Path, name: str) -> None:
    result = plugin_new(name, "--kind", "policy", "--path", str(tmp_path))
    assert result.exit_code == 1
    assert "llmfw-engine is the package of llmfw itself" in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_taken_plugin_name_is_reported_first(tmp_path: Path):
    done = plugin_new("policies", "--kind", "policy", "--path", str(tmp_path))
    assert done.exit_code == 1
    assert "the package llmfw-engine brings a plugin 'policies' already" in " ".join(done.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_taken_component_name_shows_its_full_name(tmp_path: Path):
    done = plugin_new("fcfs", "--kind", "policy", "--path", str(tmp_path))
    assert done.exit_code == 0
    assert "fcfs/fcfs" in done.output


def test_llmfw_s_command_names_are_refused(tmp_path: Path):
    done = plugin_new("serve", "--kind", "command", "--path", str(tmp_path))
    assert (done.exit_code, list(tmp_path.iterdir())) == (1, [])


def test_an_unknown_kind_lists_the_known_ones(tmp_path: Path):
    done = plugin_new("quick", "--kind", "polcy", "--path", str(tmp_path))
    assert done.exit_code == 2
    assert "policy" in done.output
    assert "route" in done.output
