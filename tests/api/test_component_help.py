"""`--help-component`: what a component is and its options, also where it cannot be imported; and `llmfw plugins`."""

from __future__ import annotations

import io
import json
import re
from typing import Annotated, Literal

import msgspec
import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.api.settings.component_source import declared_options, kinds_with_options
from llmfw.api.settings.option_fields import fields_of
from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.plugin.kinds import INTERFACES
from llmfw.core.plugin.plugins import load_plugins

POLICY = """
import msgspec
from typing import Annotated
from llmfw.core.interfaces.policy import Ordering, SchedulePolicy
{imports}

class Base(SchedulePolicy):
    class Options(SchedulePolicy.Options, frozen=True):
        \"\"\"What can be set.

        Attributes:
            most: no more than so many, of whatever
                there may be.
        \"\"\"

        most: Annotated[int, msgspec.Meta(ge=1)] = 8

class Mine(Base):
    def order(self, waiting, figures):
        return Ordering.by(waiting.arrival)

@hookimpl
def register_schedule_policies(register):
    register("mine", f"{{__name__}}_component:Mine", summary="a policy of mine", needs={needs})
"""


class Shown(SchedulePolicy.Options, frozen=True):
    """All types.

    Attributes:
        share: of something,
            in two lines.
    """

    name: str
    share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    mode: Literal["a", "b"] = "a"
    users: Annotated[tuple[str, ...], msgspec.Meta(description="Who.")] = ()
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    on: bool = True


def llmfw(*line: str) -> Result:
    return CliRunner().invoke(build_cli(), line)


@pytest.fixture
def install_policy(install_plugin):
    """Return a function that installs a policy whose class stands in a module of its own."""

    def install(imports: str = "", needs: tuple[str, ...] = ()) -> None:
        source = POLICY.format(imports=imports, needs=needs)
        declaration = source[source.index("@hookimpl") :]
        folder = install_plugin("ours", declaration)
        [module] = [path.stem for path in folder.glob("plugin_*.py")]
        (folder / f"{module}_component.py").write_text(source[: source.index("@hookimpl")])

    return install


def test_fields_describe_the_options_struct():
    found = [(field.name, field.type, field.default, field.about) for field in fields_of(Shown)]
    assert found == [
        ("name", "text", None, ""),
        ("share", "number, more than 0, at most 1", "0.5", "of something, in two lines."),
        ("mode", "a | b", '"a"', ""),
        ("users", "list of: text", "[]", "Who."),
        ("limit", "whole number, 0 or more | none", "none", ""),
        ("on", "true | false", "true", ""),
    ]


def test_a_component_shows_its_options_and_settings():
    shown = llmfw("serve", "--help-component", "policy.lpm").stdout
    assert shown.startswith("policy.lpm: longest cached prefix first")
    assert "plugin policies, of llmfw-engine 0." in shown
    assert (
        "  max_overtaken  (whole number, 0 or more; default: 256)\n      maximum number of later requests"
        in shown
    )
    for way in ("-o policy.max_overtaken=256", "LLMFW_POLICY__MAX_OVERTAKEN=256", "[options.policy]"):
        assert f"\n  {way}" in shown


def test_a_kind_shows_all_its_components():
    shown = llmfw("serve", "--help-component", "policy").stdout
    assert all(f"policy.{name}: " in shown for name in load_plugins().registry.names("policy"))
    assert "It has no options." in shown


@pytest.mark.parametrize(("imports", "needs"), [("", ()), ("import no_such_kernels", ("no_such_kernels",))])
def test_options_are_read_without_importing(install_policy, imports, needs):
    install_policy(imports, needs)
    entry = load_plugins().registry.find("policy", "mine")
    [field] = declared_options(entry.path)
    assert (field.name, field.default) == ("most", "8")
    assert field.about == "no more than so many, of whatever there may be."
    [component] = [
        p for p in json.loads(llmfw("plugins", "--json").stdout)["components"] if p["name"] == "mine"
    ]
    assert (component["options"], component["lacks"]) == (["most"], [*needs])


def test_a_component_lacking_requirements_shows_its_options(install_policy):
    install_policy("import no_such_kernels", ("no_such_kernels",))
    shown = llmfw("serve", "--help-component", "policy.mine").stdout
    assert "needs no_such_kernels, which is not installed" in shown
    assert "most  (Annotated[int, msgspec.Meta(ge=1)]; default: 8)" in shown


def test_an_unimportable_component_shows_its_options(install_policy):
    install_policy("raise OSError('disk')")
    shown = llmfw("serve", "--help-component", "policy.mine").stdout
    assert "cannot be imported: OSError: disk" in shown
    assert "  most  (" in shown


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("polcy.lpm", "there is no kind of component 'polcy'; known: attention, .*Did you mean 'policy'"),
        ("policy.lmp", "unknown policy 'lmp'; .*Did you mean 'lpm'"),
    ],
)
def test_an_unknown_component_lists_the_known_ones(wanted, message):
    result = llmfw("serve", "--help-component", wanted)
    assert result.exit_code == 2
    assert re.search(message, " ".join(result.stderr.split()))


def test_kinds_with_options_match_their_interfaces():
    from llmfw.core.plugin.option_keys import kinds_with_options as really

    assert kinds_with_options() == set(really())
    assert {"attention", "policy"} <= kinds_with_options() <= INTERFACES.keys()


def test_bundled_options_are_read_correctly_with_descriptions():
    for plugin in load_plugins().loaded:
        for component in plugin.components:
            struct = None if component.missing() else getattr(component.load(), "Options", None)
            declared = declared_options(component.path)
            assert declared is not None, component
            assert all(field.about for field in declared), component
            if struct is not None and plugin.distribution == DISTRIBUTION:
                fields = fields_of(struct)
                assert [(f.name, f.about) for f in fields] == [(f.name, f.about) for f in declared]


def test_equal_names_list_what_shadows_them(install_plugin):
    source = "@hookimpl\ndef register_schedule_policies(register): register('twin', 'm:C')"
    install_plugin("one", source, "one")
    install_plugin("two", source, "two")
    components = json.loads(llmfw("plugins", "--json").stdout)["components"]
    found = {
        component["choose"]: component["shadowed_by"]
        for component in components
        if component["name"] == "twin"
    }
    assert found == {"one/twin": ["two/twin"], "two/twin": ["one/twin"]}
    lines = [line.split("\t") for line in llmfw("plugins").stdout.splitlines()]
    [line] = [line for line in lines if line[:2] == ["policy", "one/twin"]]
    assert "two/twin" in line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plugins_at_80_columns_are_a_table(install_plugin, monkeypatch, capsys):
    install_plugin("ours", "raise OSError('disk')", "ours")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout", stdout := Terminal())
    build_cli()(["plugins"], standalone_mode=False)
    lines = stdout.getvalue().splitlines()
    assert lines[0].split() == ["kind", "name", "summary"]
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert len(lines) < 250
    assert any(re.search("plugin +ours +did not load: OSError: disk", line) for line in lines)
    assert "No room for plugin, package" in capsys.readouterr().err


def test_a_shadowed_command_lists_its_full_name(install_plugin):
    install_plugin(
        "ours",
        "import click\n@hookimpl\ndef register_commands(cli): cli.command('serve')(lambda: click.echo('ours'))",
    )
    [component] = [
        p for p in json.loads(llmfw("plugins", "--json").stdout)["components"] if p["name"] == "serve"
    ]
    assert (component["choose"], component["shadowed_by"]) == ("ours/serve", ["llmfw"])
    assert llmfw("ours/serve").stdout == "ours\n"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ('most: "Nope" = 5', "Its Options cannot be read: NameError: name 'Nope' is not defined"),
        ("most: complex = 1j", "Its Options cannot be read: TypeError"),
        (
            'most: int = "text"',
            "Its default is not valid, a defect of the component: Expected `int`, got `str`",
        ),
    ],
)
def test_defective_options_are_told_in_one_line(install_plugin, field, words):
    source = POLICY.format(imports="", needs=()).replace(
        "most: Annotated[int, msgspec.Meta(ge=1)] = 8", field
    )
    install_plugin("ours", source.replace('_component:Mine"', ':Mine"'))
    told = llmfw("serve", "--help-component", "policy.mine")
    assert told.exit_code == 0
    assert words in told.output
    assert "-o policy.most=text" not in told.output


def test_options_that_cannot_be_read_refuse_the_component(install_plugin):
    source = POLICY.format(imports="", needs=()).replace("Annotated[int, msgspec.Meta(ge=1)]", "'Nope'")
    install_plugin("ours", source.replace('_component:Mine"', ':Mine"'))
    with pytest.raises(ComponentError, match="has Options that cannot be read: NameError"):
        load_plugins().registry.find("policy", "mine").build_options({"policy.most": "5"})
