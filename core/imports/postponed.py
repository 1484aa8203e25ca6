"""Lazy modules, which run only when code accesses an attribute that they do not have yet.

A library often imports a module only for a decorator or for a submodule. If the module is lazy, such an
import is fast, because it does not run the module. The module runs only when code needs another attribute of
the module. Only the timing changes. (The lazy modules of `importlib.util` run at any access, even if only a
submodule is imported.)
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]

_lock = threading.Lock()


def postpone(
    name: str,
    *,
    has_index: bool = False,
    submodules: Sequence[str] = (),
    then: Then | None = None,
    **known: object,
) -> None:
    """Put a placeholder for a module into `sys.modules`; accessing a missing attribute runs the module.

    Does nothing if the module is already imported, or not installed.

    Args:
        name: name of the module; its parent package must be imported or postponed.
        has_index: whether the module is a package that only maps names to submodules. Submodules are then
            imported without running the package.
        submodules: names of submodules to import now, without running the package. Unlike an index, the
            package may have functions with the same names as other submodules.
        then: function called with the module once it has run.
        known: attributes that are available without running the module.
    """
    parent, _, child = name.rpartition(".")
    package = sys.modules.get(parent)
    if name in sys.modules or (parent and package is None):
        return
    locations = (
        None if package is None or package.__spec__ is None else package.__spec__.submodule_search_locations
    )
    spec = PathFinder.find_spec(name, locations)
    if spec is None:
        return
    module = sys.modules[name] = _Postponed(spec, has_index, then, known)
    if package is not None:
        setattr(package, child, module)
    if submodules:
        module.__path__ = spec.submodule_search_locations or []
    for each in submodules:
        importlib.import_module(f"{name}.{each}")


def has_run(name: str) -> bool:
    """Return whether a module was imported and has run."""
    return name in sys.modules and not isinstance(sys.modules[name], _Postponed)


def run(name: str) -> ModuleType:
    """Import a module, even if it was postponed, and return it."""
    module = importlib.import_module(name)
    return module.run_now() if isinstance(module, _Postponed) else module


class _Postponed(ModuleType):
    """Placeholder for a module that has not run yet. Once the module has run, forwards attributes to it."""

    def __init__(
        self, spec: ModuleSpec, has_index: bool, then: Then | None, known: dict[str, object]
    ) -> None:
        super().__init__(spec.name)
        self.__spec__, self.__file__, self.__loader__ = spec, spec.origin, spec.loader
        # Without this `__path__`, importing a submodule would read `__path__`, which runs the package first.
        if has_index:
            self.__path__ = spec.submodule_search_locations or []
        self.__dict__.update(known)
        self._has_index = has_index
        self._then = then
        self._known = tuple(known)

    def run_now(self) -> ModuleType:
        """Run the module, if it has not run yet, and return it. Waits if another thread is running it."""
        name = self.__name__
        with _lock:
            is_first = sys.modules.get(name) is self
            if is_first:
                del sys.modules[name]
                for each in self._known:
                    self.__dict__.pop(each, None)
                parent, _, child = name.rpartition(".")
                if parent in sys.modules:
                    vars(sys.modules[parent]).pop(child, None)
        module = importlib.import_module(name)
        if is_first:
            _bind_submodules(module, name)
            if self._then is not None:
                self._then(module)
        return module

    def __getattr__(self, name: str) -> Any:
        is_package = self.__spec__ is not None and self.__spec__.submodule_search_locations is not None
        if name.startswith("__") and not (name == "__all__" or (name == "__path__" and is_package)):
            # Inspection reads these attributes of all modules, and must not run this module.
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        path = f"{self.__name__}.{name}"
        is_index = self._has_index and sys.modules.get(self.__name__) is self
        if is_index and PathFinder.find_spec(path, list(self.__path__)) is not None:
            return importlib.import_module(path)
        return getattr(self.run_now(), name)


def _bind_submodules(module: ModuleType, name: str) -> None:
    """Make submodules attributes of their package, if they were imported before the package ran."""
    for path, submodule in list(sys.modules.items()):
        parent, _, child = path.rpartition(".")
        if parent == name and child not in vars(module):
            setattr(module, child, submodule)
