"""Modules that are in `sys.modules` but have not run yet: the first access to a missing attribute runs them.

So a library can import another module for a decorator, or on the way to its submodules, without the seconds that running
the module takes. They are spent when code needs more of the module, if ever. Only the timing changes. (The lazy modules of
`importlib.util` run at any access, even on the way to a submodule.)
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]

_lock = threading.Lock()


def postpone(name: str, *, has_index: bool = False, then: Then | None = None, **known: object) -> None:
    """Replace a module by one that has not run, unless it is already imported or not installed.

    Args:
        name: name of a module whose package is imported or postponed.
        has_index: whether it is a package that only maps names to submodules: these are imported without running it.
        then: function called with the module once it has run.
        known: attributes that are known without running the module.
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


def has_run(name: str) -> bool:
    """Return whether a module was imported and has run."""
    return name in sys.modules and not isinstance(sys.modules[name], _Postponed)


def run(name: str) -> ModuleType:
    """Import a module, even if it was postponed, and return it."""
    module = importlib.import_module(name)
    return module.run_now() if isinstance(module, _Postponed) else module


class _Postponed(ModuleType):
    """Placeholder of a module that has not run; forwards attributes to the module once it has."""

    def __init__(
        self, spec: ModuleSpec, has_index: bool, then: Then | None, known: dict[str, object]
    ) -> None:
        super().__init__(spec.name)
        self.__spec__, self.__file__, self.__loader__ = spec, spec.origin, spec.loader
        if (
            has_index
        ):  # else the import system asks for it on its way to a submodule, and so runs the package first
            self.__path__ = spec.submodule_search_locations or []
        self.__dict__.update(known)
        self._has_index = has_index
        self._then = then
        self._known = tuple(known)

    def run_now(self) -> ModuleType:
        """Run the module and return it. Does not run it again; waits if another thread is running it."""
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
        if is_first and self._then is not None:
            self._then(module)
        return module

    def __getattr__(self, name: str) -> Any:
        is_package = self.__spec__ is not None and self.__spec__.submodule_search_locations is not None
        if name.startswith("__") and not (name == "__all__" or (name == "__path__" and is_package)):
            # Inspection reads these attributes of all modules; they must not run this one.
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        path = f"{self.__name__}.{name}"
        is_index = self._has_index and sys.modules.get(self.__name__) is self
        if is_index and PathFinder.find_spec(path, list(self.__path__)) is not None:
            return importlib.import_module(path)
        return getattr(self.run_now(), name)
