"""What the documentation says is so."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from llmfw.api.cli import COMMANDS
from llmfw.core.plugin.hookspecs import HOOK_NAMES, HookSpecs
from llmfw.core.plugin.kinds import INTERFACES
from llmfw.core.plugin.plugins import load_plugins

from .conftest import Install
from .length import WITHOUT_UNUSED

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("internals/*.md")])
HOOKS = {name: hook for name, hook in vars(HookSpecs).items() if not name.startswith("_")}
FILE = re.compile(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)?(?:#([\w-]+))?\)")


def text_of(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


@pytest.mark.parametrize("name", HOOKS)
def test_each_hook_s_section_shows_its_signature(name):
    arguments = list(inspect.signature(HOOKS[name]).parameters)[1:]
    heading = f"## {name}({', '.join(arguments)})\n"
    _, _, section = text_of("hooks.md").partition(heading)
    assert f"def {name}(" in section.partition("\n## ")[0]


def section_of(hook: str) -> str:
    """Return a hook's section of hooks.md."""
    return text_of("hooks.md").partition(f"\n## {hook}(")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", HOOKS)
def test_each_section_s_declaration_loads(name, install_plugin: Install):
    declaration = re.search(r"```python\n(@hookimpl.*?)```", section_of(name), re.DOTALL)
    assert declaration is not None
    install_plugin("shown", "import click\n" + declaration[1])
    plugins = load_plugins()
    assert [broken for broken in plugins.broken if broken.name == "shown"] == []
    [shown] = [plugin for plugin in plugins.loaded if plugin.name == "shown"]
    assert len([*shown.components, *shown.commands, *shown.routes]) == 1


def test_each_section_shows_a_tested_scaffold_example():
    kinds = {hook: kind for kind, hook in HOOK_NAMES.items()}
    kinds |= {"register_commands": "command", "register_routes": "route"}
    assert set(kinds) == set(HOOKS)
    for hook, kind in kinds.items():
        assert f"<!-- made: example_{kind} -->" in section_of(hook)


@pytest.mark.parametrize("name", HOOKS)
def test_each_section_says_when_where_and_how_often(name):
    section = section_of(name)
    _, heading, rest = section.partition("\n| when | process and thread | how often | what a raise costs |\n")
    assert heading
    assert " may keep " in section
    rows = [line.strip("|").split("|") for line in rest.partition("\n\n")[0].splitlines()[1:]]
    assert rows
    for row in rows:
        assert len(row) == 4
        assert all(cell.strip() for cell in row)
    places = [row[1].strip() for row in rows]
    assert "process" in places[0]
    for place in places:
        assert re.search("process|^the same", place), place
        assert re.search("thread|event loop|^the same", place), place


def test_every_interface_is_shown_completely():
    shown = text_of("interfaces.md")
    for path in INTERFACES.values():
        module, _, name = path.partition(":")
        interface = getattr(importlib.import_module(module), name)
        _, _, code = shown.partition(f"\nclass {name}(")
        assert all(f"def {method}(" in code for method in interface.__abstractmethods__), name


def test_no_section_describes_a_missing_hook():
    assert set(re.findall(r"^## (register_\w+)\(", text_of("hooks.md"), re.MULTILINE)) == set(HOOKS)


def test_every_kind_has_documented_hook_and_interface():
    assert set(HOOK_NAMES) == set(INTERFACES)
    for kind, hook in HOOK_NAMES.items():
        interface = INTERFACES[kind].replace(":", ".")
        assert interface in str(HOOKS[hook].__doc__)
        assert interface in text_of("hooks.md")


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        ("write_a_plugin.md", "## Every kind at a glance"),
        ("interfaces.md", "## How components are built and called"),
    ],
)
def test_tables_of_kinds_are_complete(page, heading):
    table = text_of(page).partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    firsts = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", firsts)) == set(INTERFACES)


def test_register_is_documented_with_its_signature():
    from llmfw.core.plugin.hookspecs import Register

    parameters = list(inspect.signature(Register.__call__).parameters.values())[1:]
    plain = inspect.Signature([parameter.replace(annotation=parameter.empty) for parameter in parameters])
    assert f"register{plain}".replace("''", '""') in text_of("hooks.md")


def test_generated_text_is_current():
    done = subprocess.run(
        [sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run `make docs`"


def test_each_option_is_documented():
    own = [command.command() for command in COMMANDS]
    while own:
        command = own.pop()
        if isinstance(command, click.Group):
            with click.Context(command) as ctx:
                below = [command.get_command(ctx, name) for name in command.list_commands(ctx)]
            own.extend(found for found in below if found is not None)
        options = [option for option in command.params if isinstance(option, click.Option)]
        assert all(option.help for option in options)
        assert all(flag in text_of("cli.md") for option in options for flag in option.opts)


def test_each_page_is_linked_from_the_index():
    linked = {target for target, _ in LINK.findall(text_of("index.md"))}
    assert linked == {page.relative_to(DOCS).as_posix() for page in PAGES} - {"index.md"}


def anchors_of(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


OTHERS = [ROOT / "README.md", *sorted(DOCS.glob("examples/*/README.md"))]


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page):
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), f"{target}#{anchor}"


def install_example(text: str, folder: Path) -> Path:
    """Write the files of a text to a folder, and install the package that they are into its `installed`."""
    for name, content in FILE.findall(text):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    install = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--target",
        "installed",
        ".",
    ]
    subprocess.run([sys.executable, "-m", "pip", *install], cwd=folder, check=True)
    return folder


def run_its_tests(folder: Path, *options: str) -> int:
    """Run the tests of an installed example; return how many passed."""
    env = os.environ | {"PYTHONPATH": str(folder / "installed")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *WITHOUT_UNUSED,
        *options,
        "tests",
    ]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [num_passed] = re.findall(r"(\d+) passed", done.stdout)
    return int(num_passed)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first package of write_a_plugin.md, installed."""
    text, _, _ = text_of("write_a_plugin.md").partition("\n## An attention backend\n")
    return install_example(text, tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def attention_example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second package of write_a_plugin.md, installed."""
    _, _, text = text_of("write_a_plugin.md").partition("\n## An attention backend\n")
    return install_example(text, tmp_path_factory.mktemp("attention"))


def test_the_example_plugin_can_be_chosen(example, fresh_python: Callable[..., str]):
    code = (
        "from llmfw.api.cli import build_cli\n"
        "build_cli()(['plugins', '--json'], prog_name='llmfw', standalone_mode=False)"
    )
    found = json.loads(fresh_python(code, example / "installed"))
    assert ("shortest", "llmfw-shortest") in {(part["name"], part["package"]) for part in found["components"]}
    assert [broken for broken in found["broken"] if broken["package"] == "llmfw-shortest"] == []


def test_the_example_plugin_accepts_its_option(example, fresh_python: Callable[..., str]):
    code = (
        "from llmfw.core.plugin.plugins import load_plugins\n"
        "entry = load_plugins().registry.find('policy', 'shortest')\n"
        "print(entry.load()(entry.build_options({'policy.cached_is_free': 'false'})).options)"
    )
    assert fresh_python(code, example / "installed") == "Options(cached_is_free=False)\n"


def test_the_example_plugins_own_test_passes(example):
    assert run_its_tests(example) > 20, "the promises of the interface were not tested"


@pytest.mark.long
@pytest.mark.slow
def test_the_attention_example_keeps_the_promises(attention_example):
    assert run_its_tests(attention_example, "-k", "fp32") > 10, (
        "the promises of the interface were not tested"
    )


def test_the_attention_example_needs_its_name(attention_example, fresh_python: Callable[..., str]):
    code = (
        "from llmfw.core.plugin.plugins import load_plugins\n"
        "names = [entry.name for entry in load_plugins().registry.entries('attention')]\n"
        "print(names.index('torch') < names.index('sdpa'))"
    )
    assert fresh_python(code, attention_example / "installed") == "True\n"
