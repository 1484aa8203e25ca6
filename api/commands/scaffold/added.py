"""Adds components to a package that exists: its own files stay, except for the module that declares them."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmfw.core import ConfigError
from llmfw.core.base.unreadable import unreadable
from llmfw.core.plugin.plugins import GROUP

from .declaration import add_hook
from .kinds import Kind
from .package import PackageNames, component_files, declarations


class ExistingPackage:
    """A package with one plugin of llmfw.

    Args:
        folder: folder with the package's pyproject.toml.

    Raises:
        ConfigError: the folder has no such package, or its names differ from the names that `llmfw plugin
            new` gives.

    Attributes:
        names: the names in the package.
    """

    def __init__(self, folder: Path) -> None:
        project = _project(folder)
        groups = project.get("entry-points")
        plugins = groups.get(GROUP) if isinstance(groups, dict) else None
        if not isinstance(plugins, dict):
            plugins = {}
        if len(plugins) != 1:
            raise ConfigError(
                f"{folder / 'pyproject.toml'} has {len(plugins)} entry points in the group '{GROUP}'; one is needed: a package "
                "that `llmfw plugin new` has written has it"
            )
        [(name, module)] = plugins.items()
        self.names = PackageNames(name)
        if (self.names.distribution, self.names.module) != (project.get("name"), module):
            raise ConfigError(
                f"the package is {project.get('name')!r} and its module {module!r}; a plugin called {name!r} needs "
                f"{self.names.distribution!r} and {self.names.module!r}"
            )
        self._folder = folder
        self._declaration = folder / self.names.module / "__init__.py"

    def add(self, kinds: Sequence[Kind]) -> None:
        """Add a component of each kind, completely or not at all.

        Raises:
            ConfigError: a file of a component exists already, the declaring module has the kind's hook or cannot
                be read, or a file cannot be written.
        """
        try:
            source = self._declaration.read_text("utf-8")
        except OSError as error:
            raise ConfigError(f"{self._declaration} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self._declaration} cannot be read: {unreadable(error)}") from error
        try:
            changed = functools.reduce(add_hook, declarations(kinds, self.names), source)
        except ConfigError as error:
            raise ConfigError(f"{self._declaration} cannot be changed: {error}") from error
        files = [
            (self._folder / place, content)
            for kind in kinds
            for place, content in component_files(kind, self.names)
        ]
        for file, _ in files:
            if file.exists():
                raise ConfigError(f"{file} is there already, and is left as it is; rename it first")
        written: list[Path] = []
        try:
            for file, content in files:
                file.parent.mkdir(parents=True, exist_ok=True)
                written.append(file)
                file.write_bytes(content)
            draft = self._declaration.with_suffix(".new")
            written.append(draft)
            draft.write_text(changed, "utf-8")
            draft.replace(self._declaration)
        except OSError as error:
            for file in written:
                file.unlink(missing_ok=True)
            raise ConfigError(f"the files cannot be written: {error}") from error


def _project(folder: Path) -> dict[str, Any]:
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text("utf-8")).get("project")
    except FileNotFoundError as error:
        raise ConfigError(f"{file} does not exist; give the folder of your package with --path") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{file} cannot be read: {unreadable(error)}") from error
    return project if isinstance(project, dict) else {}
