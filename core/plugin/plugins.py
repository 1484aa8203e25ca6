"""Loads the installed plugins, and records which plugins are broken, and why.

Bundled and foreign plugins are loaded in the same way: from entry points of the group "llmfw", sorted by
name, so that nothing depends on the order of folders on `sys.path`. A plugin that cannot be imported,
misspells a hook or raises an exception is broken: all its registrations are dropped, and the reason is
recorded. Other plugins are not affected.

Environment: LLMFW_PLUGINS=a,b loads only these; LLMFW_STRICT_PLUGINS=1 makes a broken plugin an error;
LLMFW_TRACE_PLUGINS=1 prints each hook call and what it registered to stderr.

This module imports only the modules that declare hooks, never the components themselves.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import FunctionType

import click
import pluggy

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.errors import ConfigError, PluginError

from .broken_plugin import BrokenPlugin
from .containment import naming_ctrl_c, raise_if_process_ends
from .hookspecs import HOOK_NAMES, HookSpecs
from .installed_plugins import find_plugins, spare_libraries
from .one_line import one_line
from .package_metadata import name_and_version, without_plugins
from .registration import (
    check_component,
    check_devices,
    check_needs_fields,
    check_path,
    check_prefill_rank,
    meant_hook,
)
from .registry import Entry, Registry, reason_of
from .requirement import reason_against
from .slow_import import printing_to_stderr, warn_if_slow
from .torch_state import keeping_torch_state

SLOW_S = 1.0  # seconds from which a plugin's loading is reported as slow, while it runs and afterwards
GROUP = "llmfw"
_NOT_PLAIN = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR
NAMES_NO_PLUGIN = (
    "names no plugin: it was installed without an entry point in the group 'llmfw' "
    "([project.entry-points.llmfw] in its pyproject.toml)"
)


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """A plugin and everything that it registered.

    Attributes:
        name: name of the plugin's entry point.
        distribution, version: installed package that contains the plugin.
        components, commands, routes: the plugin's registrations; routes are import paths.
        seconds: time that importing the plugin's module and calling its hooks took.
    """

    name: str
    distribution: str
    version: str
    components: list[Entry] = field(default_factory=list)
    commands: list[click.Command] = field(default_factory=list)
    routes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def slowness(self) -> str | None:
        """Message for the user if the plugin loads so slowly that it delays every command; else None."""
        if self.seconds < SLOW_S:
            return None
        return (
            f"plugin {self.name!r} ({self.distribution} {self.version}) took {self.seconds:.1f} s to load, and every "
            f"command waits for that; disable it with --no-plugin {self.name}, or list other plugins in LLMFW_PLUGINS"
        )


class Plugins:
    """The plugins of this process.

    Attributes:
        loaded: working plugins, by name.
        broken: plugins that did not load, with the reason.
        warnings: sentences for the user about damaged packages, and packages installed in several versions.
        registry: components of the working plugins.

    Args:
        damaged: sentences about packages whose plugins are unknown.
        notes: further sentences for the user.
        left_out: plugins that LLMFW_PLUGINS or `disabled` leave out.
    """

    def __init__(
        self,
        loaded: Sequence[LoadedPlugin],
        broken: Sequence[BrokenPlugin],
        damaged: Sequence[str] = (),
        notes: Sequence[str] = (),
        left_out: Sequence[BrokenPlugin] = (),
    ) -> None:
        self.loaded = list(loaded)
        self.broken = list(broken)
        self.warnings = [*damaged, *notes]
        components = (component for plugin in loaded for component in plugin.components)
        self.registry = Registry(
            components, broken, lambda: [*damaged, *_packages_without_plugin()], left_out
        )

    @property
    def foreign(self) -> list[LoadedPlugin]:
        """Working plugins that are not bundled with llmfw."""
        return [plugin for plugin in self.loaded if plugin.distribution != DISTRIBUTION]

    @property
    def routes(self) -> list[tuple[str, str]]:
        """Plugin name and import path of each registered route."""
        return [(plugin.name, path) for plugin in self.loaded for path in plugin.routes]

    def add_commands(self, group: click.Group) -> None:
        """Add the plugins' commands to a click group.

        A command whose name the group already has, or that two plugins register, is added as "plugin/name".
        """
        commands = [(plugin.name, command) for plugin in self.loaded for command in plugin.commands]
        names = [*group.commands, *(str(command.name) for _, command in commands)]
        for plugin, command in commands:
            name = str(command.name)
            group.add_command(command, name if names.count(name) == 1 else f"{plugin}/{name}")


def load_plugins(disabled: Collection[str] = ()) -> Plugins:
    """Load the installed plugins, except those named in `disabled`.

    Raises:
        ConfigError: `disabled` names a plugin that is not installed.
        PluginError: a plugin is broken or a package damaged, and LLMFW_STRICT_PLUGINS is set.
    """
    installed = find_plugins(GROUP)
    if installed.damaged:
        spare_libraries()
    found = sorted(installed.entry_points, key=_loading_order)
    wanted, broken = _select(found, disabled)
    loader = _Loader()
    with naming_ctrl_c(), warn_if_slow(lambda: loader.current, after_s=SLOW_S, begun=lambda: loader.begun):
        for entry_point in wanted:
            with printing_to_stderr():
                loader.load(entry_point)
    broken += loader.broken
    faults = [*map(str, broken), *installed.damaged]
    if faults and os.environ.get("LLMFW_STRICT_PLUGINS", "0") not in ("", "0"):
        raise PluginError("; ".join(faults))
    left_out = [_left_out(each, disabled) for each in found if each not in wanted]
    return Plugins(loader.loaded, broken, installed.damaged, installed.notes, left_out)


def _loading_order(entry_point: EntryPoint) -> tuple[str, bool, str]:
    """Return the key by which plugins are sorted before loading: by name, with llmfw's own plugin first.

    If two plugins have the same name, the second one is refused.
    """
    distribution = _package_of(entry_point)[0]
    return entry_point.name, distribution != DISTRIBUTION, distribution


def _select(
    found: Sequence[EntryPoint], disabled: Collection[str]
) -> tuple[list[EntryPoint], list[BrokenPlugin]]:
    installed = {entry_point.name for entry_point in found}
    for name in disabled:
        if name not in installed:
            raise ConfigError(
                f"there is no plugin {name!r} to leave out; installed: {', '.join(sorted(installed))}"
            )
    only = os.environ.get("LLMFW_PLUGINS")
    wanted = installed if only is None else {name.strip() for name in only.split(",") if name.strip()}
    absent = [
        BrokenPlugin(name, "no package", "", "named in LLMFW_PLUGINS, but not installed")
        for name in sorted(wanted - installed)
    ]
    return [e for e in found if e.name in wanted and e.name not in disabled], absent


def _left_out(entry_point: EntryPoint, disabled: Collection[str]) -> BrokenPlugin:
    cause = "--no-plugin" if entry_point.name in disabled else "LLMFW_PLUGINS"
    return BrokenPlugin(entry_point.name, *_package_of(entry_point), f"{cause} leaves it out")


class _Loader:
    """Loads plugins one by one, so that each registration and each failure can be attributed to a plugin."""

    def __init__(self) -> None:
        self.loaded: list[LoadedPlugin] = []
        self.broken: list[BrokenPlugin] = []
        self.current = "plugins"  # description of the plugin that is being loaded
        self.begun = time.monotonic()  # start of loading that plugin
        self._manager = pluggy.PluginManager("llmfw")
        self._manager.add_hookspecs(HookSpecs)
        self._trace = os.environ.get("LLMFW_TRACE_PLUGINS", "0") not in ("", "0")

    def load(self, entry_point: EntryPoint) -> None:
        """Load a plugin; record its registrations in `loaded`, or the reason why it did not load in
        `broken`."""
        plugin = LoadedPlugin(entry_point.name, *_package_of(entry_point))
        self.current = f"plugin {plugin.name!r} ({plugin.distribution} {plugin.version})"
        self.begun = time.monotonic()
        for other in self.loaded:
            if other.name == plugin.name:
                self._reject(
                    plugin,
                    "another package brings a plugin of this name and comes first: "
                    f"{other.distribution} {other.version}",
                )
                return
        begun = time.perf_counter()
        try:
            if reason := reason_against(entry_point.dist):
                raise PluginError(reason)
            with keeping_torch_state(lambda: f"importing {self.current}"):
                module = entry_point.load()
            _check_functions(module)
            self._manager.register(module, plugin.name)
            self._check_hooks(module)
            self._call_hooks(module, plugin)
        except BaseException as error:  # noqa: BLE001 (a plugin may raise anything)
            raise_if_process_ends(error)
            self._manager.unregister(name=plugin.name)
            self._reject(plugin, _reason(error))
        else:
            self.loaded.append(replace(plugin, seconds=time.perf_counter() - begun))

    def _reject(self, plugin: LoadedPlugin, reason: str) -> None:
        broken = BrokenPlugin(plugin.name, plugin.distribution, plugin.version, reason)
        self.broken.append(broken)
        self._print(str(broken))

    def _check_hooks(self, module: object) -> None:
        """Raise PluginError for an implementation of an unknown hook, which pluggy would never call."""
        for caller in self._manager.get_hookcallers(module) or []:
            if not caller.has_spec():
                meant = meant_hook(caller.name)
                hint = f". Did you mean {meant!r}?" if meant else ""
                raise PluginError(f"there is no hook {caller.name!r}{hint}")

    def _call_hooks(self, module: object, plugin: LoadedPlugin) -> None:
        others = [other for other in self._manager.get_plugins() if other is not module]
        kinds = {hook: kind for kind, hook in HOOK_NAMES.items()}
        for caller in self._manager.get_hookcallers(module) or []:
            self._print(f"{plugin.name}: {caller.name}")
            call = self._manager.subset_hook_caller(caller.name, others)
            if caller.name == "register_commands":
                group = click.Group(plugin.name)
                call(cli=group)
                plugin.commands.extend(group.commands.values())
            elif caller.name == "register_routes":
                call(register=_route_register(plugin))
            else:
                call(register=_component_register(plugin, kinds[caller.name]))
        self._print_registered(plugin)

    def _print_registered(self, plugin: LoadedPlugin) -> None:
        names: Iterable[str] = [
            *(f"{component.kind} {component.name} = {component.path}" for component in plugin.components),
            *(f"command {command.name}" for command in plugin.commands),
            *(f"route {path}" for path in plugin.routes),
        ]
        for name in names:
            self._print(f"{plugin.name}: registered {name}")

    def _print(self, line: str) -> None:
        if self._trace:
            print(f"llmfw plugins: {line}", file=sys.stderr)


def _check_functions(module: object) -> None:
    """Raise PluginError for a hook without `@hookimpl`, with an unknown argument, or that is not a plain function.

    pluggy would never call a hook without `@hookimpl`, and would call an async one without running its body.
    """
    for name, spec in vars(HookSpecs).items():
        function = vars(module).get(name) if name.startswith("register_") else None
        if not isinstance(function, FunctionType):
            continue
        if not hasattr(function, "llmfw_impl"):
            if function.__module__ == getattr(module, "__name__", None):
                raise PluginError(
                    f"{name} has no @hookimpl (from llmfw.core import hookimpl), and is not called: add the decorator"
                )
            continue
        if function.__code__.co_flags & _NOT_PLAIN and not function.llmfw_impl.get("wrapper"):
            raise PluginError(
                f"{name} is async or has a yield, so that it would not run; write a plain function"
            )
        passed = _arguments(spec)[1:]
        if wrong := [argument for argument in _arguments(function) if argument not in passed]:
            raise PluginError(
                f"{name} has the argument {wrong[0]!r}, which this llmfw does not pass; it passes {', '.join(passed)!r}"
            )


def _arguments(function: FunctionType) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _component_register(plugin: LoadedPlugin, kind: str) -> Callable[..., None]:
    """Return the `register` function to pass to the hook of this kind (see `hookspecs.Register`)."""

    def register(
        name: str,
        path: str,
        *,
        summary: str = "",
        needs: Sequence[str] = (),
        rank: int = 0,
        prepare: str = "",
        needs_fields: Sequence[str] = (),
        devices: Sequence[str] = (),
        prefill_rank: int | None = None,
    ) -> None:
        check_component(kind, name, path, summary=summary, needs=needs, rank=rank, prepare=prepare)
        check_needs_fields(kind, name, needs_fields)
        check_devices(kind, name, devices)
        check_prefill_rank(kind, name, prefill_rank)
        if any((component.kind, component.name) == (kind, name) for component in plugin.components):
            raise PluginError(f"{kind} {name!r} is registered twice; choose another name for one")
        package = (plugin.distribution, plugin.version)
        plugin.components.append(
            Entry(
                kind,
                name,
                path,
                plugin.name,
                *package,
                summary,
                tuple(needs),
                rank,
                prepare,
                tuple(needs_fields),
                tuple(devices),
                prefill_rank,
            )
        )

    return register


def _route_register(plugin: LoadedPlugin) -> Callable[[str], None]:
    """Return the `register` function to pass to the hook `register_routes` (see
    `hookspecs.RegisterRoute`)."""

    def register(path: str) -> None:
        check_path(path)
        plugin.routes.append(path)

    return register


def _packages_without_plugin() -> list[str]:
    """Return a clause for an error message about each package that requires llmfw but has no plugin entry
    point."""
    return [f"package {package} {NAMES_NO_PLUGIN}" for package in without_plugins(GROUP)]


def _package_of(entry_point: EntryPoint) -> tuple[str, str]:
    """Return the name and version of the package that provides an entry point."""
    distribution = entry_point.dist
    if distribution is None:
        return "unknown package", ""
    return name_and_version(distribution)


def package_of(plugin: str) -> tuple[str, str]:
    """Return the name and version of the package that provides a loaded plugin."""
    named = [each for each in find_plugins(GROUP).entry_points if each.name == plugin]
    found = sorted(named, key=_loading_order)
    return _package_of(found[0]) if found else ("unknown package", "")


def _reason(error: BaseException) -> str:
    """Return why a plugin did not load, as one line.

    Omits the exception's class if the message is clear without it.
    """
    text = one_line(str(error))
    known = isinstance(error, PluginError | pluggy.PluginValidationError)
    return text if known and text else reason_of(error)
