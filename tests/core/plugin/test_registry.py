"""A name becomes a class, or an error that says what would have been right."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.errors import ComponentError, ConfigError, LostComponentError, UnknownComponentError
from llmfw.core.interfaces.policy import Ordering, SchedulePolicy
from llmfw.core.plugin.broken_plugin import BrokenPlugin
from llmfw.core.plugin.option_keys import check_option_keys
from llmfw.core.plugin.registry import Entry, Registry


class Deaf(SchedulePolicy):
    """A policy whose method does not take what it is given."""

    def order(self, waiting):
        return Ordering.by(waiting.arrival)


class Aged(SchedulePolicy):
    """A policy with options."""

    class Options(SchedulePolicy.Options, frozen=True):
        seconds: float = 2.0
        steps: int = 1
        users: tuple[str, ...] = ()
        label: str = ""

    def order(self, waiting, figures):
        return Ordering.by(waiting.arrival)


AGED = Entry("policy", "aged", f"{__name__}:Aged", "ours", "llmfw-ours", "1.0")
TWIN = replace(AGED, plugin="theirs")
BROKEN = BrokenPlugin("newer", "llmfw-newer", "2.0", "no such hook")


def test_components_have_short_and_full_names():
    registry = Registry([AGED])
    assert registry.find("policy", "aged") is registry.find("policy", "ours/aged") is AGED


def test_a_method_without_the_arguments_is_refused():
    entry = replace(AGED, path=f"{__name__}:Deaf")
    with pytest.raises(ComponentError, match=r"'aged' of plugin 'ours' .*: order cannot be called as"):
        entry.load()
    assert entry.load(checked=False) is Deaf


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(
        UnknownComponentError, match=r"unknown policy 'agd'; known: aged\. Did you mean 'aged'\?$"
    ):
        Registry([AGED]).find("policy", "agd")


def test_an_unknown_name_mentions_unloaded_plugins():
    with pytest.raises(LostComponentError, match=r"'newer' \(llmfw-newer 2.0\) did not load: no such hook"):
        Registry([AGED], [BROKEN]).find("policy", "new")


@pytest.mark.parametrize("name", ["newer", "newer/x", "newer_first", "llmfw-newer", "Newer"])
def test_a_name_like_an_unloaded_plugin_blames_it(name):
    others = [replace(BROKEN, name="other", distribution="else")]
    with pytest.raises(LostComponentError, match=f"^there is no policy '{name}': plugin 'newer' [^;]*$"):
        Registry([AGED], [BROKEN, *others]).find("policy", name)


def test_a_misspelt_name_does_not_blame_unloaded_plugins():
    with pytest.raises(UnknownComponentError, match="Did you mean 'aged'") as caught:
        Registry([AGED], [BROKEN]).find("policy", "agd")
    assert not isinstance(caught.value, LostComponentError)


def test_a_kind_without_components_is_reported():
    with pytest.raises(UnknownComponentError, match="unknown tool parser 'x'; none is registered"):
        Registry([AGED]).find("tool_parser", "x")


def test_an_ambiguous_name_lists_full_names():
    with pytest.raises(ConfigError, match="2 plugins; choose one of: ours/aged, theirs/aged"):
        Registry([AGED, TWIN]).find("policy", "aged")


def test_components_with_equal_names_stay_reachable():
    registry = Registry([AGED, TWIN])
    assert registry.names("policy") == ["ours/aged", "theirs/aged"]
    assert [registry.find("policy", name) for name in registry.names("policy")] == [AGED, TWIN]


def test_entries_are_sorted_by_rank_and_name():
    parts = [replace(AGED, name=name, rank=rank) for name, rank in (("b", 0), ("a", 0), ("c", 5))]
    assert [entry.name for entry in Registry(parts).entries("policy")] == ["c", "a", "b"]


@pytest.mark.torch
def test_missing_requirements_are_found_without_importing(fresh_python):
    code = (
        "import sys; from llmfw.core.plugin.registry import Entry;"
        "part = Entry('policy', 'x', 'm:C', 'p', 'd', '1', needs=('torch', 'torch.cuda', 'torch.nope', 'nope.x'));"
        "print(part.missing(), 'torch' in sys.modules)"
    )
    assert fresh_python(code) == "['torch.nope', 'nope.x'] False\n"


def test_loading_returns_the_class():
    assert AGED.load() is Aged


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("no.such.module:X", "ModuleNotFoundError: No module named 'no'"),
        (f"{__name__}:Missing", "AttributeError: .*Missing"),
    ],
)
def test_import_errors_name_component_plugin_path_and_cause(path, cause):
    with pytest.raises(
        ComponentError,
        match=rf"policy 'aged' of plugin 'ours' \(llmfw-ours 1.0, {path}\) cannot be imported: {cause}",
    ):
        replace(AGED, path=path).load()


@pytest.mark.parametrize(
    ("needs", "missing"),
    [
        (("spaces.deep.real",), []),
        (("spaces.deep.real.inner", "spaces.other.far"), []),
        (("spaces.deep.nope", "spaces.nope.real"), ["spaces.deep.nope", "spaces.nope.real"]),
        (("spaces.deep.real.inner.nope",), ["spaces.deep.real.inner.nope"]),
    ],
)
def test_requirements_in_namespace_packages_are_found(tmp_path, monkeypatch, needs, missing):
    """OpenTelemetry's modules, for example, lie in packages that have no file of their own, in several folders."""
    for path in ("a/spaces/deep/real/__init__.py", "a/spaces/deep/real/inner.py", "b/spaces/other/far.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for folder in "ab":
        monkeypatch.syspath_prepend(tmp_path / folder)
    assert replace(AGED, needs=needs).missing() == missing
    assert "spaces" not in sys.modules


def test_a_component_names_its_missing_requirements():
    with pytest.raises(
        ComponentError, match=r"'aged' of plugin 'ours' .* needs no_such_kernels, which is not installed"
    ):
        replace(AGED, needs=("no_such_kernels",)).load()


def test_missing_requirements_name_the_extra_to_install():
    lacking = replace(AGED, name="plot", distribution=DISTRIBUTION, needs=("no_such_plots", "math"))
    assert (
        lacking.lacking() == "needs no_such_plots, which is not installed: pip install 'llmfw-engine[plot]'"
    )
    assert replace(lacking, needs=("math",)).lacking() is None


@pytest.mark.parametrize("path", ["llmfw.core.interfaces.parsers:ToolParser", f"{__name__}:AGED"])
def test_a_component_of_another_interface_is_refused(path):
    with pytest.raises(ComponentError, match=r"is not a subclass of llmfw\.core\.SchedulePolicy"):
        replace(AGED, path=path).load()


class Half(SchedulePolicy):
    """A policy without its method."""


class Odd(Aged):
    """A policy whose options are of no use."""

    Options = dict


class Failing(Aged):
    def __init__(self, options):
        raise OSError("no such table")


def test_a_class_lacking_methods_is_refused_early():
    with pytest.raises(
        ComponentError, match=r"'aged' of plugin 'ours' .* lacks order, which llmfw\.core\.SchedulePolicy"
    ):
        replace(AGED, path=f"{__name__}:Half").load()


def test_options_must_be_a_struct():
    with pytest.raises(
        ComponentError, match=r"'aged' of plugin 'ours' .* has Options that are not a msgspec\.Struct"
    ):
        replace(AGED, path=f"{__name__}:Odd").build_options({})


def test_construction_errors_name_the_component():
    with pytest.raises(
        ComponentError, match=r"'aged' of plugin 'ours' .* cannot be built: OSError: no such table"
    ):
        AGED.build(Failing, Aged.Options())


def test_options_are_converted_to_declared_types():
    options = AGED.build_options({"policy.seconds": "0.5", "policy.steps": "3", "attention.steps": "x"})
    assert options == Aged.Options(seconds=0.5, steps=3)


def test_non_text_options_must_have_the_declared_type():
    options = AGED.build_options({"policy.seconds": 3, "policy.users": ["ann"], "policy.label": "[x]"})
    assert options == Aged.Options(seconds=3.0, users=("ann",), label="[x]")
    with pytest.raises(ConfigError, match=r"policy.label is 3; it must be text$"):
        AGED.build_options({"policy.label": 3})


def test_lists_are_written_as_json():
    users = AGED.build_options({"policy.users": '["ann", "bob"]', "policy.steps": "2"}).users
    assert users == ("ann", "bob")
    with pytest.raises(ConfigError, match=r"policy.users is 'ann'; it must be a list of: text"):
        AGED.build_options({"policy.users": "ann"})


def test_an_unknown_option_suggests_the_known_ones():
    with pytest.raises(
        ConfigError,
        match=r"policy 'aged' has no option 'second'; known: seconds, steps, users, label. Did you mean 'seconds'\?",
    ):
        AGED.build_options({"policy.second": "1"})


def test_an_option_of_the_wrong_type_is_named():
    with pytest.raises(
        ConfigError,
        match=r"options of policy 'aged' of plugin 'ours' .*: policy\.steps is 'many'; it must be a whole number$",
    ):
        AGED.build_options({"policy.steps": "many"})


def test_a_mistyped_option_quotes_its_value():
    """Values of secrets are left out."""
    with pytest.raises(ConfigError, match=r": policy\.steps is 'many'; it must be a whole number$"):
        AGED.build_options({"policy.steps": "many", "policy.seconds": "2"})
    with pytest.raises(ConfigError, match=r": policy\.users is a URL; it must be a list of: text$") as told:
        AGED.build_options({"policy.users": "postgresql://ann:secret@host"})
    assert "secret" not in str(told.value)


def test_options_of_kinds_without_any_are_refused():
    with pytest.raises(
        ConfigError, match="components of the kind 'module_pass' have none; options are named"
    ):
        check_option_keys({"module_pass.x": "1"})


@pytest.mark.parametrize("key", ["policy", "policy.", "polcy.x", "module_pass.x", ".x"])
def test_options_of_unknown_kinds_are_refused(key):
    with pytest.raises(ConfigError, match=r"no component option .* named attention.…, policy.…"):
        check_option_keys({key: "1"})


def test_option_keys_of_kinds_with_options_pass():
    check_option_keys(
        {"policy.x": "1", "attention.y": "2", "file_store.z": "3", "tool_parser.v": "4", "model.w": "5"}
    )


def test_a_missing_required_option_is_named(tmp_path, monkeypatch):
    (tmp_path / "needy.py").write_text(
        "from llmfw.core.interfaces.model_source import ModelSource\n"
        "class Needy(ModelSource):\n"
        "    class Options(ModelSource.Options, frozen=True):\n"
        "        run: str\n"
        "    def folder(self): return '/'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry("model", "needy", "needy:Needy", "ours", "d", "1")
    with pytest.raises(ConfigError, match=r"missing required field `run`; give -o model.run=VALUE"):
        entry.build_options({})
