"""Resolves a setting to the registered components that it names, and tries to build them.

Attention backends, module passes, policies, drafters and grammar backends are all chosen here. Each kind adds
only a function that builds a component of the kind, or returns the reason why the component cannot be used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from llmfw.core.base.described import described
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.base.setting_types import OptionValue

from .containment import raise_if_process_ends
from .registry import Entry, Registry

BuiltT = TypeVar("BuiltT")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a component cannot be used.

    Attributes:
        reason: a clause for messages, without the component's name.
        error: error of a broken component; None: the component does not support the model or the device.
        is_for_other_device: whether the component was not tried, because it is for devices of other types.
    """

    reason: str
    error: ComponentError | None = None
    is_for_other_device: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The components that a setting names.

    Attributes:
        is_auto: whether the setting is "auto", so that a component that cannot be used is skipped.
        entries: the components, in the order in which to try them.
        device: type of the device, such as "cuda"; "": unknown, so that components for any device are tried.
    """

    is_auto: bool
    entries: tuple[Entry, ...]
    device: str = ""

    def attempt(self, entry: Entry, build: Callable[[type[Any]], BuiltT | str]) -> BuiltT | Rejection:
        """Build one of the components. Returns the component, or the reason why it cannot be used.

        Args:
            entry: registry entry of the component.
            build: function that builds a component of a class, or returns the reason why the class cannot be
                used.

        Raises:
            ConfigError: an option of the component is wrong.
        """
        if self.is_auto and self.device and not entry.is_for(self.device):
            return Rejection(f"it is for {', '.join(entry.devices)}", is_for_other_device=True)
        missing = ", ".join(entry.missing())
        if missing:
            return Rejection(f"needs {missing}" if self.is_auto else entry.lacking() or "")
        try:
            found = build(entry.load())
        except ComponentError as error:
            return Rejection(str(error), error)
        except ConfigError:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything; it is reported
            raise_if_process_ends(error)
            broken = ComponentError(f"{entry} failed: {described(error)}")
            return Rejection(str(broken), broken)
        return Rejection(found) if isinstance(found, str) else found


@dataclass(frozen=True, slots=True)
class Created(Generic[BuiltT]):
    """A component that was built with its options, and its registry entry."""

    entry: Entry
    component: BuiltT


def choose(registry: Registry, kind: str, setting: str, device: str = "") -> Choice:
    """Return the components that a setting names.

    Args:
        setting: "auto" (all components of the kind, by descending rank), "none" (no component), or names
            separated by commas (in this order).
        device: see `Choice`.

    Raises:
        UnknownComponentError: no plugin registers one of the names.
        ConfigError: several plugins register one of the names, or a name is given twice.
    """
    if setting == "none":
        return Choice(is_auto=False, entries=())
    if setting == "auto":
        return Choice(is_auto=True, entries=tuple(registry.entries(kind)), device=device)
    entries = tuple(registry.find(kind, name.strip()) for name in setting.split(","))
    for entry in entries:
        if entries.count(entry) > 1:
            raise ConfigError(
                f"{kind.replace('_', ' ')} {entry.name!r} is named twice in {setting!r}; name it once"
            )
    return Choice(is_auto=False, entries=entries)


def create(registry: Registry, kind: str, name: str, options: Mapping[str, OptionValue]) -> Created[Any]:
    """Find a component by name and build it, with its options as the only argument.

    Args:
        name: "name" or "plugin/name".
        options: "kind.key" → value; options of other kinds are ignored.

    Raises:
        ConfigError: the component or an option does not exist, or it does not allow an option's value.
        ComponentError: the component cannot be imported or built.
    """
    entry = registry.find(kind, name)
    return Created(entry, entry.build(entry.load(), entry.build_options(options)))
