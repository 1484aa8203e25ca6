"""What options a part's class declares, read in its source: the part and what it needs are not imported.

Where a class has no `Options` of its own, those of its bases are looked for, in other modules, too. What is made while
a module runs is not seen.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from llmfw.core.plugin.registry import INTERFACES

from .option_fields import OptionField, attributes_in

OPTIONS = "Options"
_MOST_STEPS = 16  # from class to base to base; no one has more


@dataclass(frozen=True, slots=True)
class _Place:
    """A class, and the module that it stands in."""

    node: ast.ClassDef
    module: str


@cache
def kinds_with_options() -> frozenset[str]:
    """Return the kinds of parts whose interface has options."""
    return frozenset(kind for kind, path in INTERFACES.items() if _declares(path))


def _declares(path: str) -> bool:
    module, _, name = path.partition(":")
    return _find(module, [name, OPTIONS], _MOST_STEPS) is not None


def declared_options(path: str) -> list[OptionField] | None:
    """Return the options of the class "package.module:Class", or None if its source is not to be found."""
    module, _, name = path.partition(":")
    found = _find(module, name.split("."), _MOST_STEPS)
    return None if found is None else list(_options_of(found, _MOST_STEPS).values())


def _options_of(place: _Place, steps: int) -> dict[str, OptionField]:
    """Return the options of a part's class, or of the first of its bases that has some."""
    for node in place.node.body:
        if isinstance(node, ast.ClassDef) and node.name == OPTIONS:
            return _fields(_Place(node, place.module), steps - 1)
    for base in _bases(place, steps - 1):
        if found := _options_of(base, steps - 1):
            return found
    return {}


def _fields(place: _Place, steps: int) -> dict[str, OptionField]:
    """Return the fields of an `Options` and of its bases."""
    found: dict[str, OptionField] = {}
    for base in _bases(place, steps - 1):
        found |= _fields(base, steps - 1)
    told = attributes_in(ast.get_docstring(place.node) or "")
    for node in place.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name, kind = node.target.id, ast.unparse(node.annotation)
            if not kind.startswith(("ClassVar", "typing.ClassVar")):
                default = ast.unparse(node.value) if node.value else None
                found[name] = OptionField(name, kind, default, told.get(name, ""))
    return found


def _bases(place: _Place, steps: int) -> Iterator[_Place]:
    for base in place.node.bases:
        names = ast.unparse(base).split(".")
        if all(map(str.isidentifier, names)) and (found := _find(place.module, names, steps)):
            yield found


def _find(module: str, names: list[str], steps: int) -> _Place | None:
    """Return the class of a dotted name in a module, which may have it from another one."""
    tree = _tree(module)
    if tree is None or steps <= 0:
        return None
    for node in _statements(tree.body):
        if isinstance(node, ast.ClassDef) and node.name == names[0]:
            return _within(_Place(node, module), names[1:], steps)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == names[0]:
                    target = _imported(module, node)
                    return _find(target, [alias.name, *names[1:]], steps - 1) if target else None
    return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, and those below a condition, such as `if TYPE_CHECKING`, in its place."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements(node.body)
        else:
            yield node


def _within(place: _Place, names: list[str], steps: int) -> _Place | None:
    """Return the class of that name within a class, or within its bases."""
    if not names:
        return place
    for node in place.node.body:
        if isinstance(node, ast.ClassDef) and node.name == names[0]:
            return _within(_Place(node, place.module), names[1:], steps)
    for base in _bases(place, steps - 1):
        if found := _within(base, names, steps - 1):
            return found
    return None


def _imported(module: str, node: ast.ImportFrom) -> str | None:
    """Return the module that an import statement in a module names."""
    if not node.level:
        return node.module
    spec = _spec(module)
    package = module if spec is not None and spec.submodule_search_locations else module.rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return None


@cache
def _tree(module: str) -> ast.Module | None:
    try:
        return ast.parse(_text(module) or "")
    except (SyntaxError, ValueError):
        return None


@cache
def _text(module: str) -> str | None:
    """Return a module's source, if it is to be found."""
    spec = _spec(module)
    if spec is None or not (spec.origin or "").endswith(".py"):
        return None
    try:
        return Path(str(spec.origin)).read_text("utf-8")
    except (OSError, ValueError):
        return None


def _spec(module: str) -> ModuleSpec | None:
    """Find a module without importing it, or its parents."""
    top, *inner = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    for depth in range(len(inner)):
        if spec is None:
            return None
        name = ".".join([top, *inner[: depth + 1]])
        spec = PathFinder.find_spec(name, spec.submodule_search_locations or [])
    return spec
