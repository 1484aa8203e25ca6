"""Adds a hook to the module that declares a package's components. The rest of the module stays unchanged."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator

from llmfw.core import ConfigError


def add_hook(source: str, declaration: str) -> str:
    """Return a module's text with the imports and functions of another declaration added.

    The first function of the declaration is the hook of its kind. Further ones, such as the hook of a request
    field that the component needs, are joined to a function of the same name.

    Args:
        source: text of the module, which may be an author's own.
        declaration: text of a module with imports and hooks, as the templates have.

    Raises:
        ConfigError: the module is not valid Python, or has a function with the name of the first one.
    """
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise ConfigError(f"it is not valid Python: line {error.lineno}: {error.msg}") from error
    except ValueError as error:  # it has a null byte
        raise ConfigError(f"it is not valid Python: {error}") from error
    added = ast.parse(declaration)
    own, *further = _functions(added)
    if own.name in {function.name for function in _functions(module)}:
        raise ConfigError(f"it has {own.name}() already; call register a second time there")
    for statement in added.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            source = _with_import(source, statement)
    source = _with_function(source, _text_of(declaration, own))
    for function in further:
        source = _joined(source, declaration, function)
    return source


def num_hooks(declaration: str) -> int:
    """Return the number of hooks of a declaration."""
    return len(list(_functions(ast.parse(declaration))))


def _with_function(source: str, text: str) -> str:
    return "\n\n\n".join([source.rstrip("\n"), text]) + "\n"


def _joined(source: str, declaration: str, function: ast.FunctionDef) -> str:
    """Return a module's text with a function added. Extends an existing function of the same name."""
    existing = {each.name: each for each in _functions(ast.parse(source))}
    if function.name not in existing:
        return _with_function(source, _text_of(declaration, function))
    lines, end = source.splitlines(), existing[function.name].end_lineno
    lines[end:end] = declaration.splitlines()[function.body[0].lineno - 1 : function.end_lineno]
    return "\n".join(lines) + "\n"


def _functions(module: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in module.body if isinstance(node, ast.FunctionDef))


def _text_of(source: str, function: ast.FunctionDef) -> str:
    """Return a function's text with its decorators."""
    first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
    return "\n".join(source.splitlines()[first - 1 : function.end_lineno])


def _with_import(source: str, wanted: ast.Import | ast.ImportFrom) -> str:
    """Return a module's text with an import added, in ruff's order of imports."""
    present = [node for node in ast.parse(source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = source.splitlines()
    for node in present:
        if _key(node) == _key(wanted) and not any(name.asname for name in node.names):
            names = {name.name for name in (*node.names, *wanted.names)}
            if names == {name.name for name in node.names}:
                return source
            if "#" not in "\n".join(lines[node.lineno - 1 : node.end_lineno]):
                lines[node.lineno - 1 : node.end_lineno] = [_import(wanted, names)]
                return "\n".join(lines) + "\n"
    return _inserted(lines, present, wanted)


def _inserted(
    lines: list[str], present: list[ast.Import | ast.ImportFrom], wanted: ast.Import | ast.ImportFrom
) -> str:
    """Return the lines as text, with an import inserted where it belongs in the order of imports."""
    text = _import(wanted, (name.name for name in wanted.names))
    later = next((node for node in present if _key(node) > _key(wanted)), None)
    sections = [_key(node)[0] for node in present]
    is_new_section = _key(wanted)[0] not in sections
    if later is not None:
        lines[later.lineno - 1 : later.lineno - 1] = [text, ""] if is_new_section else [text]
    elif present:
        last = present[-1].end_lineno or 0
        lines[last:last] = ["", text] if is_new_section else [text]
    else:
        docstring = ast.parse("\n".join(lines)).body[:1]
        start = docstring[0].end_lineno or 0 if docstring and isinstance(docstring[0], ast.Expr) else 0
        lines[start:start] = ["", text, ""] if start else [text, ""]
    return "\n".join(lines) + "\n"


def _key(node: ast.Import | ast.ImportFrom) -> tuple[int, bool, str]:
    """Return the rank of an import: the standard library first, then `import x` before `from x import y`."""
    is_from = isinstance(node, ast.ImportFrom)
    name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
    is_relative = isinstance(node, ast.ImportFrom) and node.level > 0
    if name == "__future__":
        return 0, is_from, name
    section = 3 if is_relative else 1 if name.partition(".")[0] in sys.stdlib_module_names else 2
    return section, is_from, name


def _import(node: ast.Import | ast.ImportFrom, names: Iterable[str]) -> str:
    listed = ", ".join(sorted(set(names), key=lambda name: (name[:1].islower(), name)))
    return f"from {node.module} import {listed}" if isinstance(node, ast.ImportFrom) else f"import {listed}"
