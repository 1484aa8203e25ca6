"""Interfaces as pages show them: signatures, fields and docstrings, cut out of the source as they stand there."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path


def stub(path: str) -> str:
    """Return a public name "module:Name" as its source has it, without the bodies of functions."""
    module, _, name = path.partition(":")
    source = _source(module)
    lines, body = source.splitlines(), list(_statements(ast.parse(source).body))
    for place, node in enumerate(body):
        if name in _names(node):
            following = body[place + 1] if place + 1 < len(body) else None
            return "\n".join(_rendered(node, following, lines))
        if isinstance(node, ast.ImportFrom) and name in (alias.name for alias in node.names):
            return stub(
                f"{importlib.util.resolve_name('.' * node.level + (node.module or ''), _package(module))}:{name}"
            )
    raise LookupError(f"{module} does not define {name}")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, and those that stand below a condition, as `if TYPE_CHECKING`, in place of it."""
    for node in body:
        if isinstance(node, ast.If):
            yield from node.body
        else:
            yield node


def _source(module: str) -> str:
    """Return a module's source. It is not imported: some bring torch."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text("utf-8")


def _package(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    return spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]


def docstring(module: str) -> str:
    """Return a module's docstring without its first line."""
    text = ast.get_docstring(ast.parse(_source(module))) or ""
    return text.partition("\n")[2].strip()


def tree(module: str) -> str:
    """Return the drawing in a module's docstring."""
    drawn = [line for line in docstring(module).splitlines() if line.startswith("    ")]
    return inspect.cleandoc("\n".join(drawn))


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _rendered(node: ast.stmt, following: ast.stmt | None, lines: list[str]) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return _class(node, lines)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return _function(node, lines)
    if isinstance(node, ast.AnnAssign) and (short := _without_setting(node)):
        return [short]
    end = following if following is not None and _is_text(following) else node
    return lines[node.lineno - 1 : end.end_lineno]


def _without_setting(node: ast.AnnAssign) -> str:
    """Return a field without what the command line says of it, or "" if it says nothing."""
    notes = node.annotation.slice if isinstance(node.annotation, ast.Subscript) else None
    if not (isinstance(notes, ast.Tuple) and ast.unparse(notes.elts[-1]).startswith("Setting(")):
        return ""
    default = "" if node.value is None else f" = {_code(node.value)}"
    return f"{' ' * node.col_offset}{_code(node.target)}: {_code(notes.elts[0])}{default}"


def _code(node: ast.expr) -> str:
    return re.sub(r"'([^'\"]*)'", r'"\1"', ast.unparse(node))


def _class(node: ast.ClassDef, lines: list[str]) -> list[str]:
    shown = _head(node, lines)
    members = node.body[1:] if ast.get_docstring(node) else node.body
    apart = bool(ast.get_docstring(node))
    for place, member in enumerate(members):
        following = members[place + 1] if place + 1 < len(members) else None
        if _is_text(member) or not _is_shown(member):
            continue
        is_field = isinstance(member, ast.Assign | ast.AnnAssign)
        if apart or not is_field:
            shown.append("")
        rendered = _rendered(member, following, lines)
        shown += rendered
        apart = not is_field or len(rendered) > 1
    if not members and not ast.get_docstring(node):
        shown.append(" " * (node.col_offset + 4) + "...")
    return shown


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> list[str]:
    shown = _head(node, lines)
    if not ast.get_docstring(node):
        shown[-1] = shown[-1].removesuffix(" ...") + " ..."
    return shown


def _head(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> list[str]:
    """Return decorators, the signature and the docstring."""
    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    first = node.body[0]
    if ast.get_docstring(node):
        return lines[start - 1 : first.end_lineno]
    return lines[start - 1 : _last_of_signature(node, lines)]


def _last_of_signature(node: ast.AST, lines: list[str]) -> int:
    """Return the line in which the colon stands that ends a signature."""
    line = getattr(node, "lineno", 1)
    while not lines[line - 1].split("  #")[0].rstrip().endswith((":", ": ...")):
        line += 1
    return line


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_shown(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return not node.name.startswith("_") or node.name in ("__init__", "__call__")
    if isinstance(node, ast.ClassDef):
        return not node.name.startswith("_")
    return any(not name.startswith("_") for name in _names(node))


def stubs(*paths: str) -> Iterator[str]:
    """Yield a code block for each run of names from one module, headed by the import."""
    by_module: dict[str, list[str]] = {}
    for path in paths:
        module, _, name = path.partition(":")
        by_module.setdefault(module, []).append(name)
    for module, names in by_module.items():
        shown = "\n\n\n".join(stub(f"{module}:{name}") for name in names)
        yield f"From `{module}`:\n\n```python\n{shown}\n```\n"
