"""Reads the options that a component's class declares from its source code, without importing the component.

Classes are looked up by name, through imports and base classes. Classes that a module creates dynamically are
not found.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path

from llmfw.core.plugin.kinds import INTERFACES

from .option_fields import OptionField, attributes_in

_MAX_DEPTH = 16
"""Maximum number of imports and base classes to follow from a class to its options; ends import cycles."""


@dataclass(frozen=True, slots=True)
class _Class:
    node: ast.ClassDef
    module: str
    depth: int

    def bases(self) -> Iterator[_Class]:
        for base in self.node.bases:
            if found := _find(self.module, ast.unparse(base), self.depth + 1):
                yield found

    def inner(self, name: str) -> _Class | None:
        """Return a nested class of this class or of its bases, by its dotted name; None if there is none."""
        first, _, rest = name.partition(".")
        for node in self.node.body:
            if isinstance(node, ast.ClassDef) and node.name == first:
                found = _Class(node, self.module, self.depth)
                return found.inner(rest) if rest else found
        return next(filter(None, (base.inner(name) for base in self.bases())), None)

    def fields(self) -> dict[str, OptionField]:
        """Return the options that a class `Options` and its bases declare."""
        found = {name: field for base in self.bases() for name, field in base.fields().items()}
        told = attributes_in(ast.get_docstring(self.node, clean=False) or "")
        for node in self.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name, kind = node.target.id, ast.unparse(node.annotation)
                if not kind.startswith(("ClassVar", "typing.ClassVar")):
                    default = ast.unparse(node.value) if node.value else None
                    found[name] = OptionField(name, kind, default, told.get(name, ""))
        return found


@cache
def kinds_with_options() -> frozenset[str]:
    """Return the kinds of components whose interface has options."""
    return frozenset(kind for kind, path in INTERFACES.items() if _at(f"{path}.Options"))


def declared_options(path: str) -> list[OptionField] | None:
    """Return the options of the class "package.module:Class", or None if its source is not found."""
    found = _at(path)
    if found is None:
        return None
    options = found.inner("Options")
    return [] if options is None else list(options.fields().values())


def _at(path: str) -> _Class | None:
    module, _, name = path.partition(":")
    return _find(module, name, 0)


def _find(module: str, name: str, depth: int) -> _Class | None:
    """Return the class with a dotted name in a module; None if there is none.

    Follows the module's imports.
    """
    first, _, rest = name.partition(".")
    for node in _statements(_body(module)) if depth < _MAX_DEPTH else ():
        if isinstance(node, ast.ClassDef) and node.name == first:
            found = _Class(node, module, depth)
            return found.inner(rest) if rest else found
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == first:
                    return _find(_imported(module, node), name.replace(first, alias.name, 1), depth + 1)
    return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements. Each `if` statement is replaced by the statements in its body."""
    for node in body:
        yield from _statements(node.body) if isinstance(node, ast.If) else (node,)


def _imported(module: str, node: ast.ImportFrom) -> str:
    """Return the full name of the module in an import statement; "" if the import fails.

    Args:
        module: name of the module that contains the statement.
    """
    _, is_package = _source(module)
    try:
        return resolve_name(
            "." * node.level + (node.module or ""), module if is_package else module.rpartition(".")[0]
        )
    except ImportError:  # beyond the top
        return ""


@cache
def _body(module: str) -> list[ast.stmt]:
    """Return the statements of a module; [] if its source cannot be read."""
    path, _ = _source(module)
    try:
        return ast.parse(Path(path).read_text("utf-8")).body if path.endswith(".py") else []
    except (OSError, SyntaxError, ValueError):
        return []


@cache
def _source(module: str) -> tuple[str, bool]:
    """Return a module's file, and whether the module is a package.

    Does not import the module or its parents.
    """
    top, *inner = module.split(".")
    try:
        spec = find_spec(top) if top else None
    except (ImportError, ValueError):
        spec = None
    for depth in range(len(inner)):
        if spec is None:
            break
        name = ".".join([top, *inner[: depth + 1]])
        spec = PathFinder.find_spec(name, spec.submodule_search_locations or [])
    if spec is None:
        return "", False
    return str(spec.origin or ""), bool(spec.submodule_search_locations)
