"""Plugins come in by one door, and whatever one of them does, the others stay."""

from __future__ import annotations

import re
import signal

import click
import pytest

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.errors import (
    ComponentError,
    ConfigError,
    LostComponentError,
    PluginError,
    UnknownComponentError,
)
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.slow_import import warn_if_slow

from ...doubles.serving import wait_until

POLICY = """
@hookimpl
def register_schedule_policies(register):
    register("mine", f"{__name__}:Mine", summary="a policy of mine")
"""
COMMAND = """
import click

@hookimpl
def register_commands(cli):
    @cli.command()
    def hello():
        click.echo("hello from " + __name__)
"""
BREAKING = {
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
    "raise SystemExit(3)": "SystemExit: 3",
    POLICY + "@hookimpl\ndef register_models(register): raise OSError('disk')": "OSError: disk",
    "@hookimpl\ndef register_schedule_policy(register): pass": "no hook 'register_schedule_policy'. Did you mean "
    "'register_schedule_policies'?",
    "@hookimpl\ndef register_policy(register): pass": "Did you mean 'register_schedule_policies'?",
    "@hookimpl\ndef register_grammars(register): pass": "Did you mean 'register_grammar_backends'?",
    r"raise OSError('\x1b[2J')": r"OSError: \x1b[2J",
    "raise OSError('a' * 3000 + ' the cause')": "characters left out) … a",
    "@hookimpl\ndef register_models(register, engine): pass": "register_models has the argument 'engine', which this llmfw "
    "does not pass; it passes 'register'",
    "@hookimpl\nasync def register_models(register): pass": "register_models is async or has a yield",
    "@hookimpl\ndef register_models(register): yield": "register_models is async or has a yield",
    "def register_models(register): pass": "register_models has no @hookimpl (from llmfw.core import hookimpl)",
}
WRONG_CALLS = {
    "register('a b', 'm:C')": "policy name 'a b' is not made of",
    "register('a/b', 'm:C')": "policy name 'a/b' is not made of",
    "register('a', 'm.C')": "'m.C' is not an import path",
    "register('a', object)": "is not an import path",
    "register('a', 'm:C'); register('a', 'm:D')": "policy 'a' is registered twice",
    "register('a', 'm:C', needs='torch')": "it must be a sequence of names",
    "register(5, 'm:C')": "policy name 5 is not made of",
    "register('auto', 'm:C')": "policy name 'auto' is a word of the options",
    "register('none', 'm:C')": "policy name 'none' is a word of the options",
    "register('a', 'm:C', needs=['torch>=2'])": "has 'torch>=2', which is not the name of a module",
    "register('a', 'm:C', needs=None)": "needs of policy 'a' is None",
    "register('a', 'm:C', rank='high')": "rank of policy 'a' is 'high'; it must be a whole number",
    "register('a', 'm:C', rank=float('nan'))": "rank of policy 'a' is nan",
    "register('a', 'm:C', summary=5)": "summary of policy 'a' is 5",
    r"register('a', 'm:C', summary='\x1b[2J')": r"summary of policy 'a' is '\x1b[2J'",
    "register('a', 'm:C', prepare=None)": "None is not an import path",
    "register('a', 'm:C', needs_fields='deadline_ms')": "needs_fields of policy 'a' is 'deadline_ms'; it must be a",
    "register('a', 'm:C', needs_fields=['a-b'])": "has 'a-b', which is not the name of a request field",
    "register('a', 'm:C', devices='cuda')": "devices of policy 'a' is 'cuda'; it must be a sequence of names",
    "register('a', 'm:C', devices=['cuda:0'])": "has 'cuda:0', which is not the type of a device",
    "register('a', 'm:C', prefill_rank=2)": "prefill_rank of policy 'a' is 2; only attention has one",
    "register('a', 'm:C', prefill_rank='high')": "is 'high'; it must be a whole number",
    "register('a', 'm:C', speed=3)": "unexpected keyword argument 'speed'",
}


def broken_reason(name: str) -> str:
    (reason,) = [broken.reason for broken in load_plugins().broken if broken.name == name]
    return reason


def test_an_external_component_is_found_by_name(install_plugin):
    install_plugin("ours", POLICY)
    entry = load_plugins().registry.find("policy", "mine")
    assert (entry.plugin, entry.distribution, entry.version) == ("ours", "foreign", "1.2")


@pytest.mark.parametrize(("source", "reason"), BREAKING.items())
def test_a_broken_plugin_is_dropped_with_its_reason(install_plugin, source, reason):
    install_plugin("ours", source)
    plugins = load_plugins()
    assert reason in broken_reason("ours")
    assert "fcfs" in plugins.registry.names("policy")
    assert "mine" not in plugins.registry.names("policy")


@pytest.mark.parametrize(("call", "reason"), WRONG_CALLS.items())
def test_an_invalid_registration_names_the_mistake(install_plugin, call, reason):
    install_plugin("ours", f"@hookimpl\ndef register_schedule_policies(register): {call}")
    assert reason in broken_reason("ours")


def test_a_broken_plugin_does_not_affect_later_ones(install_plugin):
    install_plugin("a_first", next(iter(BREAKING)), "first")
    install_plugin("b_second", POLICY, "second")
    assert load_plugins().registry.find("policy", "mine").plugin == "b_second"


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_the_second_of_equal_plugin_names_is_rejected(install_plugin, order):
    """The order of `sys.path` does not matter."""
    for distribution in order:
        install_plugin("ours", POLICY, distribution)
    plugins = load_plugins()
    assert plugins.registry.find("policy", "mine").distribution == "one"
    assert [broken.distribution for broken in plugins.broken if broken.name == "ours"] == ["two"]


def test_a_bundled_plugin_cannot_be_replaced_by_name(install_plugin):
    install_plugin("policies", POLICY, "a_package_that_sorts_first")
    assert load_plugins().registry.find("policy", "fcfs").distribution == DISTRIBUTION
    assert "another package" in broken_reason("policies")


def test_equal_component_names_are_kept_with_plugin_prefixes(install_plugin):
    install_plugin("one", POLICY, "one")
    install_plugin("two", POLICY, "two")
    names = load_plugins().registry.names("policy")
    assert {"one/mine", "two/mine"} <= set(names)


def test_only_plugins_named_in_the_environment_load(monkeypatch):
    monkeypatch.setenv("LLMFW_PLUGINS", "policies, no_such")
    plugins = load_plugins()
    assert [plugin.name for plugin in plugins.loaded] == ["policies"]
    assert [broken.name for broken in plugins.broken] == ["no_such"]


def test_a_disabled_plugin_is_not_loaded():
    assert "fcfs" not in load_plugins(disabled=["policies"]).registry.names("policy")


def test_disabling_an_unknown_plugin_lists_the_known():
    with pytest.raises(ConfigError, match=r"no plugin 'polices' to leave out; installed: .*policies"):
        load_plugins(disabled=["polices"])


def test_strict_mode_turns_broken_plugins_into_errors(install_plugin, monkeypatch):
    install_plugin("ours", "raise OSError('disk')")
    monkeypatch.setenv("LLMFW_STRICT_PLUGINS", "1")
    with pytest.raises(PluginError, match=r"plugin 'ours' \(foreign 1.2\) did not load: OSError: disk"):
        load_plugins()


def test_the_trace_shows_hook_calls_and_registrations(install_plugin, monkeypatch, capsys):
    install_plugin("ours", POLICY)
    monkeypatch.setenv("LLMFW_TRACE_PLUGINS", "1")
    load_plugins()
    err = capsys.readouterr().err
    assert "ours: register_schedule_policies" in err
    assert "ours: registered policy mine = " in err


def test_commands_are_added_under_their_name(install_plugin):
    install_plugin("ours", COMMAND)
    group = click.Group()
    load_plugins().add_commands(group)
    assert "hello" in group.commands


def test_a_command_never_replaces_another(install_plugin):
    install_plugin("one", COMMAND, "one")
    install_plugin("two", COMMAND, "two")
    group = click.Group()
    load_plugins().add_commands(group)
    assert {"one/hello", "two/hello"} <= set(group.commands)
    assert "hello" not in group.commands


def test_routes_keep_the_name_of_their_plugin(install_plugin):
    install_plugin("ours", "@hookimpl\ndef register_routes(register): register('m:handler')")
    assert ("ours", "m:handler") in load_plugins().routes


@pytest.mark.torch
def test_bundled_plugins_and_their_classes_load():
    plugins = load_plugins()
    ours = [plugin for plugin in plugins.loaded if plugin.distribution == DISTRIBUTION]
    assert [broken for broken in plugins.broken if broken.distribution == DISTRIBUTION] == []
    for plugin in ours:
        assert all(part.load() for part in plugin.components)


def test_a_package_for_another_llmfw_is_not_loaded(install_plugin):
    folder = install_plugin("ours", POLICY)
    with open(folder / "foreign-1.2.dist-info" / "METADATA", "a") as file:
        file.write("Requires-Dist: llmfw-engine>=9\n")
    assert broken_reason("ours").startswith("it needs llmfw-engine>=9, and this is llmfw ")


def test_a_missing_import_names_llmfw_s_version(install_plugin):
    install_plugin("ours", "from llmfw.core.interfaces.policy import Prophecy")
    assert re.search(r"ImportError: cannot import name 'Prophecy'.*; this is llmfw \d", broken_reason("ours"))


def test_a_slow_plugin_is_reported(install_plugin, monkeypatch):
    monkeypatch.setattr("llmfw.core.plugin.plugins.SLOW_S", 0.1)
    install_plugin("ours", "import time; time.sleep(0.15)")
    [line] = [plugin.slowness for plugin in load_plugins().loaded if plugin.slowness]
    assert re.match(r"plugin 'ours' \(foreign 1.2\) took 0\.\d s to load.*--no-plugin ours", line)


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(3)"])
def test_a_plugins_own_interrupt_names_it(install_plugin, monkeypatch, error):
    install_plugin("ours", f"raise {error}")
    monkeypatch.setenv("LLMFW_PLUGINS", "ours")
    [broken] = load_plugins().broken
    assert str(broken).startswith("plugin 'ours' (foreign 1.2) did not load: " + error.partition("(")[0])


def test_ctrl_c_during_an_import_stays_one(install_plugin, monkeypatch):
    install_plugin("ours", "import os, signal; os.kill(os.getpid(), signal.SIGINT)\nwhile True: pass")
    monkeypatch.setenv("LLMFW_PLUGINS", "ours")
    with pytest.raises(KeyboardInterrupt):
        load_plugins()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_slow_import_names_the_plugin():
    lines = []
    with warn_if_slow(lambda: "plugin 'ours'", lines.append, after_s=0.01):
        wait_until(lambda: bool(lines))
    assert lines == ["still importing plugin 'ours' after 0 s …"]


def test_each_slow_import_is_reported_once():
    lines, begun, names = [], [0.0], ["a"]
    with warn_if_slow(lambda: names[0], lines.append, after_s=0.01, begun=lambda: begun[0]):
        wait_until(lambda: len(lines) == 1)
        names[0], begun[0] = "b", 1.0
        wait_until(lambda: len(lines) == 2)
    assert lines == [f"still importing {name} after 0 s …" for name in "ab"]


def test_unknown_component_errors_name_misconfigured_packages(tmp_path, monkeypatch):
    about = tmp_path / "llmfw_forgot-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: llmfw-forgot\nVersion: 1.0\nRequires-Dist: llmfw-engine>=0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UnknownComponentError, match=r"unknown policy 'forgot'.*package llmfw-forgot 1\.0 names no plugin"
    ):
        load_plugins().registry.find("policy", "forgot")


@pytest.mark.parametrize("code", ["print('noise')", "import sys; sys.stdout = None; sys.stderr = None"])
def test_loading_a_plugin_leaves_stdout_alone(install_plugin, capsys, code):
    install_plugin("ours", f"{code}\n{POLICY}")
    assert not [broken for broken in load_plugins().broken if broken.name == "ours"]
    print("own")
    out, err = capsys.readouterr()
    assert out == "own\n"
    assert ("noise" in err) is ("noise" in code)


def test_a_component_prints_to_stderr_when_imported(install_plugin, capsys):
    folder = install_plugin("ours", POLICY.replace("{__name__}:Mine", "loud_component:Mine"))
    (folder / "loud_component.py").write_text("print('noise')\nMine = None\n")
    with pytest.raises(ComponentError):
        load_plugins().registry.find("policy", "mine").load()
    assert capsys.readouterr() == ("", "noise\n")


@pytest.mark.parametrize("disabled", [(), ("model_demo",)])
def test_a_left_out_plugin_is_named(monkeypatch, disabled):
    if not disabled:
        monkeypatch.setenv("LLMFW_PLUGINS", "policies")
    registry = load_plugins(disabled).registry
    cause = "--no-plugin" if disabled else "LLMFW_PLUGINS"
    for choose in (lambda name: registry.find("model", name), lambda name: resolve_model(name, registry)):
        with pytest.raises(
            LostComponentError, match=f"plugin 'model_demo' .* did not load: {cause} leaves it out"
        ):
            choose("demo")


def test_an_unknown_name_lists_left_out_plugins(monkeypatch):
    monkeypatch.setenv("LLMFW_PLUGINS", "model_demo")
    with pytest.raises(
        UnknownComponentError, match=r"left out by LLMFW_PLUGINS or --no-plugin: .*, policies,"
    ):
        load_plugins().registry.find("policy", "lpm")


def test_left_out_plugins_do_not_hide_hub_ids(monkeypatch):
    monkeypatch.setenv("LLMFW_PLUGINS", "policies")
    assert resolve_model("org/demo", load_plugins().registry).path == "org/demo"
