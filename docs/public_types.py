"""Which types the signatures of public names use, to find those that a plugin could not import."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import public


def private_types(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each type of llmfw in the signatures of public names that is not public itself.

    Args:
        names: module → its public names.
    """
    found = {
        f"{module}:{name}": getattr(importlib.import_module(module), name)
        for module, group in names.items()
        for name in group
    }
    known = {id(value) for value in found.values()}
    return sorted(
        f"{place} uses {kind.__module__}.{kind.__qualname__}, which is not public"
        for path, value in found.items()
        for place, hint in _hints(value, path)
        for kind in set(_classes(hint))
        if kind.__module__.startswith("llmfw.") and not _is_known(kind, known)
    )


def _is_known(kind: type, known: set[int]) -> bool:
    """Return whether a class is public, or is nested in a public class, as `Options` is."""
    outer = kind.__qualname__.partition(".")[0]
    module = importlib.import_module(kind.__module__)
    return id(kind) in known or (outer != kind.__qualname__ and id(getattr(module, outer, None)) in known)


def _hints(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the annotations of a public name's functions, methods, properties and fields, each with its place."""
    if inspect.isfunction(value):
        yield from ((f"{path}({name})", hint) for name, hint in _resolved(value).items())
    if not inspect.isclass(value):
        return
    yield from (
        (f"{path}.{name}", hint) for name, hint in _resolved(value).items() if not name.startswith("_")
    )
    for name, member in inspect.getmembers_static(value):
        function = public._function_of(member)
        if name.startswith(("_", "test_")) or function is None or not _is_ours(function):
            continue
        yield from ((f"{path}.{name}({arg})", hint) for arg, hint in _resolved(function).items())


def _is_ours(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("llmfw.")


def _resolved(value: Any) -> dict[str, Any]:
    """Return the annotations of a class or function."""
    names: dict[str, Any] = {}
    kinds = value.__mro__ if inspect.isclass(value) else (value,)
    for module in {each.__module__ for each in kinds} - {"builtins"}:
        names |= _for_type_checkers(module)
    return typing.get_type_hints(value, localns=names)


@functools.cache
def _for_type_checkers(module: str) -> dict[str, Any]:
    """Return what a module of llmfw imports only `if TYPE_CHECKING`."""
    if not module.startswith("llmfw."):
        return {}
    names: dict[str, Any] = {}
    for node in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            code = ast.Module(node.body, type_ignores=[])
            package = {"__package__": module.rpartition(".")[0]}
            exec(compile(code, module, "exec"), package, names)  # noqa: S102 - imports of our own
    return names


def _classes(hint: Any) -> Iterator[type]:
    """Yield the classes that an annotation consists of."""
    if inspect.isclass(hint) and not typing.get_args(hint):
        yield hint
    if isinstance(hint, list | tuple):
        for each in hint:
            yield from _classes(each)
    for each in typing.get_args(hint):
        yield from _classes(each)
