"""The registry of components, by kind and name.

Plugins register names and import paths (see `hookspecs`); a component is imported when its name is chosen. If
two plugins register components of one kind with the same name, both are available as "plugin/name", and
choosing the bare name is an error. `plugins` fills the registry; this module is independent of entry points
and hooks.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import PathEntryFinder
from importlib.metadata import metadata
from typing import TYPE_CHECKING, Any, TypeVar

from llmfw.core.base.about import version
from llmfw.core.base.described import described
from llmfw.core.base.errors import ComponentError, ConfigError, LostComponentError, UnknownComponentError
from llmfw.core.base.suggestion import did_you_mean, nearest

from .broken_plugin import BrokenPlugin
from .containment import naming_ctrl_c, raise_if_process_ends
from .kinds import INTERFACES, import_path, spoken
from .one_line import one_line
from .option_keys import option_prefix, options_of
from .slow_import import printing_to_stderr, warn_if_slow
from .torch_state import keeping_torch_state

ComponentT = TypeVar("ComponentT")

if TYPE_CHECKING:
    from llmfw.core.base.setting_types import OptionValue

    from .calls import ComponentLedger


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered component, as known before it is imported.

    Attributes:
        kind: kind of the component, a key of `INTERFACES`.
        name: name by which users choose it.
        path: import path "package.module:Class".
        plugin: name of the plugin that registered it.
        distribution, version: installed package that contains the plugin.
        summary: one line for listings.
        needs: names of modules that must be importable for the component to work.
        rank: rank for the choice "auto"; components with a larger rank are tried first.
        prepare: import path of a function that is called before an engine is started (see `preparation`), or
            "".
        needs_fields: names of request fields that become active when the component is chosen.
        devices: types of the devices that the component is for; empty: any.
        prefill_rank: rank for the choice of the backend that computes prompts; None: `rank`.
    """

    kind: str
    name: str
    path: str
    plugin: str
    distribution: str
    version: str
    summary: str = ""
    needs: tuple[str, ...] = ()
    rank: int = 0
    prepare: str = ""
    needs_fields: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    prefill_rank: int | None = None

    @property
    def full_name(self) -> str:
        """Name that is unique among the plugins: "plugin/name"."""
        return f"{self.plugin}/{self.name}"

    @property
    def spoken(self) -> str:
        """Kind, name and plugin, as text for messages to clients."""
        return f"{spoken(self.kind)} {self.name!r} of plugin {self.plugin!r}"

    @property
    def option_prefix(self) -> str:
        """Prefix of the names of the component's options: its kind, or its kind and name."""
        return option_prefix(self.kind, self.name)

    def is_for(self, device: str) -> bool:
        """Return whether the component is for devices of a type, such as "cuda"."""
        return not self.devices or device in self.devices

    def missing(self) -> list[str]:
        """Return the modules in `needs` that are not installed. Imports no module."""
        return [module for module in self.needs if not _is_installed(module)]

    def lacking(self) -> str | None:
        """Return a clause that names the missing modules and, if known, the command to install them.

        Returns None if no module is missing.
        """
        missing = self.missing()
        if not missing:
            return None
        clause = f"needs {', '.join(missing)}, which is not installed"
        hint = self.install_hint()
        return f"{clause}: {hint}" if hint else clause

    def install_hint(self) -> str | None:
        """Return the command that installs the component's requirements.

        Returns None unless the package has an extra with the component's name.
        """
        extra = self.name.replace("_", "-")
        return f"pip install '{self.distribution}[{extra}]'" if extra in _extras(self.distribution) else None

    def load(self, *, checked: bool = True) -> type[Any]:
        """Import the component's class.

        Args:
            checked: whether to refuse a class whose methods do not take the interface's arguments; the
                conformance tests and `llmfw plugins doctor` report the methods in detail.

        Raises:
            ComponentError: the class cannot be imported, or does not implement the interface of its kind.
        """
        if lacking := self.lacking():
            raise ComponentError(f"{self} {lacking}")
        with naming_ctrl_c():
            try:
                found = self._import()
            except BaseException as error:  # whatever a foreign module raises is the cause to report
                raise_if_process_ends(error)
                raise ComponentError(f"{self} cannot be imported: {reason_of(error)}") from error
        interface = import_path(INTERFACES[self.kind])
        asked = INTERFACES[self.kind].replace(":", ".")
        if not (isinstance(found, type) and issubclass(found, interface)):
            raise ComponentError(f"{self} is not a subclass of {asked}; derive it from that")
        if missing := sorted(getattr(found, "__abstractmethods__", ())):
            raise ComponentError(f"{self} lacks {', '.join(missing)}, which {asked} asks for; add it")
        if checked:
            self._refuse_problems(found)
        return found

    def _refuse_problems(self, component: type[Any]) -> None:
        """Raise ComponentError for the first method that cannot be called as the interface defines."""
        from .interface_check import wrong_methods  # slow to import

        if (problem := next(wrong_methods(component), None)) is not None:
            raise ComponentError(
                f"{self}: {problem}; correct the method (`llmfw plugins doctor` lists everything that is wrong)"
            )

    def build(self, component: Callable[..., ComponentT], *args: Any, **kwargs: Any) -> ComponentT:
        """Build an object of the component's class, with the class itself or a class method.

        Raises:
            ConfigError: the class does not work with these settings.
            ComponentError: the class raised any other exception.
        """
        try:
            with keeping_torch_state(lambda: f"building {self}"):
                return component(*args, **kwargs)
        except ConfigError:
            raise
        except BaseException as error:  # whatever a foreign class raises is the cause to report
            raise_if_process_ends(error)
            raise ComponentError(f"{self} cannot be built: {described(error)}") from error

    def _import(self) -> Any:
        """Import the object at the path. Reports a slow import, and restores changed torch settings."""
        if self.path.partition(":")[0] in sys.modules:
            return import_path(self.path)
        doing = keeping_torch_state(lambda: f"importing {self}")
        with printing_to_stderr(), warn_if_slow(lambda: str(self)), doing:
            return import_path(self.path)

    def build_options(self, options: Mapping[str, OptionValue]) -> Any:
        """Build an instance of the class's `Options` from the options of this component's kind.

        Args:
            options: "kind.key" → value; options of other kinds are ignored.

        Strings are converted to the type that the component declares; lists and objects are JSON text.

        Raises:
            ConfigError: an option is unknown, a value has the wrong type, or a required option is
                missing.
            ComponentError: as in `load`; or the default of an option is not a valid value.
        """
        import msgspec

        from . import component_options as reading  # imports msgspec

        given = options_of(self.kind, (self.name, self.full_name), options)
        struct = getattr(self.load(), "Options", reading.NoOptions)
        if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
            raise ComponentError(
                f"{self} has Options that are not a msgspec.Struct; derive them from msgspec.Struct"
            )
        known = struct.__struct_encode_fields__
        for key in given:
            if key not in known:
                raise ConfigError(
                    f"{spoken(self.kind)} {self.name!r} has no option {key!r}; "
                    + (_known_names(key, known) if known else "it has none")
                )
        try:
            built, wrong = reading.converted(given, struct), reading.wrong_default(struct, given)
        except reading.ValidationError as error:
            hint = self._needed(struct, given) if "missing required" in str(error) else ""
            fault = reading.fault_of(given, error, self.option_prefix, struct)
            raise ConfigError(f"options of {self}: {fault}{hint}") from error
        except BaseException as error:  # a plugin's types may raise anything
            raise_if_process_ends(error)
            raise ComponentError(f"{self} has Options that cannot be read: {reason_of(error)}") from error
        if wrong is not None:
            raise ComponentError(f"{self} has a defect: {wrong}; give -o {self.kind}.{wrong.name}=VALUE")
        return built

    def _needed(self, struct: Any, given: Mapping[str, OptionValue]) -> str:
        """Return a clause for an error message that lists the missing required options, as a user writes
        them."""
        import msgspec

        needed = [
            field for field in msgspec.structs.fields(struct) if field.required and field.name not in given
        ]
        return f"; give {' '.join(f'-o {self.option_prefix}.{field.encode_name}=VALUE' for field in needed)}"

    def built_with(self, options: Mapping[str, OptionValue]) -> dict[str, Any]:
        """Return the keyword arguments for the component's options: {"options": …}, or {} if the component
        has none.

        Raises the same exceptions as `build_options`.
        """
        built = self.build_options(options)
        return {"options": built} if built.__struct_fields__ else {}

    def __str__(self) -> str:
        return f"{self.spoken} ({self.distribution} {self.version}, {self.path})"


class Registry:
    """All registered components.

    Args:
        entries: the components; each name occurs once per plugin and kind.
        broken: plugins that did not load. The error for an unknown name lists them, because the name may be
            theirs.
        silent: function that returns clauses about packages without a plugin entry point. The error for an
            unknown name includes these clauses.
        left_out: plugins that the user left out, which the error for an unknown name mentions.

    Attributes:
        broken, left_out: plugins that did not load.
    """

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        broken: Sequence[BrokenPlugin] = (),
        silent: Callable[[], Sequence[str]] = tuple,
        left_out: Sequence[BrokenPlugin] = (),
    ) -> None:
        self.left_out = tuple(left_out)
        self._entries = tuple(entries)
        self.broken = tuple(broken)
        self._silent = silent

    @functools.cached_property
    def ledger(self) -> ComponentLedger:
        """Records of the calls of the components in use."""
        from .calls import ComponentLedger  # imports the modules of requests

        return ComponentLedger()

    def entries(self, kind: str) -> list[Entry]:
        """Return the components of a kind, by descending rank, then by name and plugin."""
        found = [entry for entry in self._entries if entry.kind == kind]
        return sorted(found, key=lambda entry: (-entry.rank, entry.name, entry.plugin))

    def names(self, kind: str) -> list[str]:
        """Return the names that choose a component of this kind, sorted.

        A name that two plugins register is returned as "plugin/name".
        """
        entries = self.entries(kind)
        bare = [entry.name for entry in entries]
        return sorted(entry.name if bare.count(entry.name) == 1 else entry.full_name for entry in entries)

    def request_fields(self) -> frozenset[str]:
        """Return the names of all request fields, as bodies have them. Components may ask for these alone."""
        return frozenset(entry.name for entry in self.entries("request_field"))

    def find(self, kind: str, name: str) -> Entry:
        """Return the entry of the component with this name, which is "name" or "plugin/name".

        Raises:
            LostComponentError: no component has this name, and a plugin that did not load probably registers
                it.
            UnknownComponentError: no component has this name; the message lists the known names.
            ConfigError: several plugins register this name.
        """
        found = [entry for entry in self.entries(kind) if name in (entry.name, entry.full_name)]
        if not found:
            raise self._unknown(kind, name)
        if len(found) > 1:
            spellings = ", ".join(entry.full_name for entry in found)
            raise ConfigError(
                f"{spoken(kind)} {name!r} is brought by {len(found)} plugins; choose one of: {spellings}"
            )
        return found[0]

    def _unknown(self, kind: str, name: str) -> UnknownComponentError:
        """Return the error for an unknown name. The name may be misspelt, or belong to a plugin that did not
        load."""
        what, known = f"{spoken(kind)} {name!r}", self.names(kind)
        if suspects := [plugin for plugin in (*self.broken, *self.left_out) if plugin.is_named_in(name)]:
            return LostComponentError(f"there is no {what}: {'; '.join(map(str, suspects))}")
        message, causes = (
            f"unknown {what}; {_known_names(name, known)}",
            [*map(str, self.broken), *self._silent()],
        )
        names = ", ".join(plugin.name for plugin in self.left_out)
        left_out = [f"left out by LLMFW_PLUGINS or --no-plugin: {names}"] if names else []
        if not causes:
            return UnknownComponentError(" ".join([message, *(f"({clause})" for clause in left_out)]))
        # A broken plugin's registrations are unknown: if no known name is similar, the name may be one of them.
        error = UnknownComponentError if nearest(name, known) else LostComponentError
        return error(f"{message} ({'; '.join([*causes, *left_out])})")


def reason_of(error: BaseException) -> str:
    """Return why an import failed, as one line."""
    reason = one_line(described(error))
    if isinstance(error, ImportError) and (error.name or "").split(".")[0] == "llmfw":
        reason += f"; this is llmfw {version()}, and the plugin was made for another one"
    return reason


def _known_names(name: str, known: Collection[str]) -> str:
    """Return a clause for error messages that lists the known names, and suggests the one that is most
    similar."""
    if not known:
        return "none is registered"
    return f"known: {', '.join(known)}{did_you_mean(name, known)}"


def _extras(distribution: str) -> list[str]:
    """Return the names of an installed package's extras."""
    try:
        return metadata(distribution).get_all("Provides-Extra") or []
    except Exception:  # noqa: BLE001 (not installed under this name, or its metadata are damaged)
        return []


def _is_installed(module: str) -> bool:
    """Return whether a module is installed, without importing it.

    Unlike `find_spec`, does not import the packages that contain the module.
    """
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module that is in sys.modules without a spec
        return True
    if spec is None:
        return False
    folders = list(spec.submodule_search_locations or [])
    for depth in range(len(inner)):
        found = _folders_of(".".join([top, *inner[: depth + 1]]), folders)
        if found is None:
            return False
        folders = found
    return True


def _folders_of(module: str, within: Iterable[str]) -> list[str] | None:
    """Return the folders of a package, [] for a module that is not a package, None if it is not found.

    Asks the finder of each folder: `PathFinder` needs the package above a namespace package to be imported.

    Args:
        within: folders of the package above it.
    """
    portions: list[str] = []
    for folder in within:
        finder = pkgutil.get_importer(folder)
        spec = finder.find_spec(module) if isinstance(finder, PathEntryFinder) else None
        if spec is not None and spec.loader is not None:
            return list(spec.submodule_search_locations or [])
        if spec is not None:  # a part of a namespace package
            portions += spec.submodule_search_locations or []
    return portions or None
