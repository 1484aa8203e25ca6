"""`llmfw plugins doctor` finds what is wrong with a plugin and its components, and survives them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.api.commands.doctor import examination
from llmfw.api.commands.doctor.checks import problems_of
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry
from llmfw.plugins.store_memory.files import MemoryFiles

COMPONENTS = """
import asyncio, os, sys, time
import msgspec
from llmfw.core.interfaces.policy import Ordering, SchedulePolicy

class Fine(SchedulePolicy):
    class Options(SchedulePolicy.Options, frozen=True):
        speed: int = 1
    def order(self, waiting, figures, *further):
        return Ordering.by(waiting.arrival)

class Unfinished(SchedulePolicy):
    pass

class Misread(SchedulePolicy):
    def order(self, waiting):
        return Ordering.by(waiting.arrival)

class Awaited(SchedulePolicy):
    async def order(self, waiting, figures):
        return Ordering.by(waiting.arrival)

class Loose(Fine):
    class Options(msgspec.Struct):
        speed: int = 1

class Untrue(Fine):
    class Options(SchedulePolicy.Options, frozen=True):
        speed: int = "fast"

class Nameless(Fine):
    class Options(SchedulePolicy.Options, frozen=True):
        speed: "Nope" = 1

class Unread(Fine):
    Options = {"speed": 1}

class Stranger:
    pass
"""
EXPECTED = {
    "fine": None,
    "unfinished": "lacks order, which",
    "misread": r"order cannot be called as the interface's order\(waiting, figures\) is: too many positional arguments",
    "awaited": "order is an async function; the interface's is not, and nothing would await it",
    "loose": "Options does not extend SchedulePolicy.Options",
    "untrue": "the default of its option 'speed', 'fast', is refused: Expected `int`, got `str`",
    "nameless": "Options cannot be read: NameError: name 'Nope' is not defined",
    "unread": "Options is not a msgspec Struct",
    "stranger": "is not a subclass of llmfw.core.SchedulePolicy",
    "nowhere": "cannot be imported: AttributeError",
}


class WithOptions(MemoryFiles):
    """A store that is built with options."""

    class Options(MemoryFiles.Options, frozen=True):
        url: str = ""

    def __init__(self, folder, *, options):
        pass


class Demanding(MemoryFiles):
    """A store that is built with what it is not given."""

    def __init__(self, folder, url):
        pass


def doctor(*line: str) -> Result:
    return CliRunner().invoke(build_cli(), ["plugins", "doctor", *line])


@pytest.fixture
def install_components(
    install_plugin: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Return a function that installs a plugin of policies, each a class of the source, and has no other one loaded."""

    def install(names: list[str], source: str) -> None:
        calls = "".join(
            f"    register({name!r}, f'{{__name__}}_component:{name.title()}')\n" for name in names
        )
        folder = install_plugin("ours", f"@hookimpl\ndef register_schedule_policies(register):\n{calls}")
        [module] = [path.stem for path in folder.glob("plugin_*.py")]
        (folder / f"{module}_component.py").write_text(source)
        monkeypatch.setenv("LLMFW_PLUGINS", "ours")

    return install


def test_components_are_checked_against_their_interface(install_components):
    install_components([*EXPECTED], COMPONENTS)
    result = doctor("--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [component["component"] for component in found["components"]] == [
        f"policy ours/{name}" for name in EXPECTED
    ]
    for name, text in EXPECTED.items():
        told = [each["text"] for each in found["findings"] if f"ours/{name} " in each["what"]]
        assert bool(told) == (text is not None)
        assert text is None or (len(told) == 1 and re.match(text, told[0])), told


@pytest.mark.parametrize(("component", "num_problems"), [(WithOptions, 0), (Demanding, 1)])
def test_components_may_require_options(component, num_problems):
    entry = Entry("file_store", "mine", f"{__name__}:{component.__name__}", "ours", "foreign", "1.2")
    assert (
        len([text for text in problems_of(entry) if text.startswith("__init__ cannot be called")])
        == num_problems
    )


def test_hanging_or_exiting_components_are_reported(install_components):
    # Each class is made where its module is asked for it, as a slow module would be.
    source = COMPONENTS + (
        "def __getattr__(name):\n"
        "    if name == 'Slow': time.sleep(60)\n"
        "    if name == 'Deadly': os._exit(7)\n"
        "    if name == 'Leaving': sys.exit(3)\n"
        "    raise AttributeError(name)\n"
    )
    install_components(["slow", "deadly", "leaving", "fine"], source)
    result = doctor("--timeout", "2")
    assert result.stdout.splitlines()[:-1] == [
        "problem: policy ours/slow (foreign 1.2): was not imported after 2 s; it was stopped",
        "problem: policy ours/deadly (foreign 1.2): ended the process that imported it, with exit code 7",
        "problem: policy ours/leaving (foreign 1.2): cannot be imported: SystemExit: 3",
    ]
    assert result.stdout.splitlines()[-1].startswith(
        "4 components, 3 problems; slowest to import: policy ours/"
    )


def test_missing_requirements_are_no_problem(install_plugin, monkeypatch):
    component = "register('fast', 'no_such_kernels.x:Fast', needs=['no_such_kernels'])"
    install_plugin(
        "ours", f"print('noise')\n@hookimpl\ndef register_attention_backends(register): {component}"
    )
    monkeypatch.setenv("LLMFW_PLUGINS", "ours")
    result = doctor()
    assert result.exit_code == 0
    assert result.stdout == (
        "lacks: attention ours/fast (foreign 1.2): needs no_such_kernels, which is not installed\n1 component, 0 problems\n"
    )


def test_a_plugin_that_delays_each_start_is_reported(install_plugin, monkeypatch):
    """`llmfw serve` warns of it from a second on, and so does the doctor."""
    install_plugin("ours", "import time; time.sleep(1.2)")
    monkeypatch.setenv("LLMFW_PLUGINS", "ours")
    result = doctor()
    assert result.exit_code == 0
    assert re.match(r"slow: plugin 'ours' \(foreign 1\.2\): takes 1\.\d s to load", result.stdout)


def test_slow_imports_are_reported_without_failing(install_components, monkeypatch):
    install_components(["fine"], COMPONENTS)
    monkeypatch.setattr(examination, "SLOW_S", 0.0)
    monkeypatch.setattr(examination, "SLOW_LOADING_S", 0.0)
    result = doctor()
    assert result.exit_code == 0
    patterns = [
        r"slow: plugin 'ours' \(foreign 1\.2\): takes \d+\.\d s to load, at each start of llmfw",
        r"slow: policy ours/fine \(foreign 1\.2\): takes \d+\.\d s to import",
        r"1 component, 0 problems; slowest to import: policy ours/fine, \d+\.\d s",
    ]
    for line, pattern in zip(result.stdout.splitlines(), patterns, strict=True):
        assert re.fullmatch(pattern, line)


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("import time; time.sleep(60)", "problem: plugin 'ours': was not imported after 2 s; it was stopped"),
        ("raise OSError('disk')", "problem: plugin 'ours' (foreign 1.2): did not load: OSError: disk"),
        (
            "import os; os._exit(9)",
            "problem: plugin 'ours': ended the process that imported it, with exit code 9",
        ),
        (
            "@hookimpl\ndef register_routes(register): register('json:nothing')",
            "problem: route json:nothing (foreign 1.2): cannot be imported: AttributeError",
        ),
        (
            "@hookimpl\ndef register_routes(register): register('json:dumps')",
            "problem: route json:dumps (foreign 1.2): is a function that none of litestar's get, post, … decorates",
        ),
    ],
)
def test_an_unloadable_plugin_is_a_problem(install_plugin, monkeypatch, source, line):
    install_plugin("ours", source)
    monkeypatch.setenv("LLMFW_PLUGINS", "ours")
    result = doctor("--timeout", "2" if "sleep" in source else "60")  # a busy machine imports for seconds
    assert result.exit_code == 1
    assert result.stdout.startswith(line)


def test_bundled_light_components_have_no_problem(monkeypatch):
    monkeypatch.setenv("LLMFW_PLUGINS", "policies,store_memory,parsers_families")
    result = doctor("--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["findings"]) == (0, [])
    assert len(found["components"]) == sum(len(plugin.components) for plugin in load_plugins().loaded)


def test_only_other_packages_have_own_processes():
    groups = examination.grouped(["ours", "policies", "store_memory", "theirs"])
    assert groups == [["policies", "store_memory"], ["ours"], ["theirs"]]


def test_what_is_examined_is_told_meanwhile(install_components):
    install_components(["fine"], COMPONENTS)
    assert doctor().stderr == "examining plugin 'ours' …\n"
    assert doctor("--json").stderr == ""


def test_the_first_import_of_torch_is_not_slow():
    event = {"lacks": None, "problems": [], "seconds": examination.SLOW_S + 5}
    [slow] = examination._of_component("a", event)
    assert slow.level == "slow"
    assert list(examination._of_component("a", event | {"torch": True})) == []


def test_a_package_lacking_its_entry_point_is_noted(install_components, tmp_path, monkeypatch):
    install_components(["fine"], COMPONENTS)
    about = tmp_path / "llmfw_forgot-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: llmfw-forgot\nVersion: 1.0\nRequires-Dist: llmfw-engine>=0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    result = doctor()
    assert "note: package llmfw-forgot 1.0: names no plugin" in result.stdout
    assert result.exit_code == 0
