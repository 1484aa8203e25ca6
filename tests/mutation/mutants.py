"""Changes one thing in the source of a module, as a mistake would: a comparison, a number, a call that is left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Add,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
QUIET = ("logger", "warnings")
"""Objects whose calls change nothing that a conformance test could see."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed module.

    Attributes:
        line: number of the changed line, from 1.
        change: the old and the new code, as in "a < b -> a <= b".
        source: source code of the whole changed module.
    """

    line: int
    change: str
    source: str


def mutants(source: str, every: int = 1) -> Iterator[Mutant]:
    """Yield the mutants of a module's source, in the order of its lines.

    Annotations, docstrings, error messages, calls of loggers and what a class declares for its conformance tests are not
    changed.

    Args:
        source: the module's source code.
        every: change only every so many-th place.
    """
    tree = ast.parse(source)
    for path in [*_places(tree, ())][::every]:
        old = _at(tree, path)
        for new in _changes(old):
            was, now = (ast.unparse(each).replace("\n", "; ")[:100] for each in (old, new))
            _put(tree, path, new)  # a copy of the tree would take longer than all else
            changed = ast.unparse(tree)
            _put(tree, path, old)
            yield Mutant(old.lineno, f"{was} -> {now}", changed)


Path = tuple[tuple[str, int | None], ...]
"""The way from a module to a node: name of a field, and the index in it where the field is a list."""


def _places(node: ast.AST, path: Path) -> Iterator[Path]:
    """Yield the paths of all nodes below that may be changed."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(node, ast.Raise):
            continue
        for i, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.expr | ast.stmt | ast.comprehension) or _is_quiet(child):
                continue
            there = (*path, (name, i))
            if isinstance(child, ast.expr | ast.stmt):
                yield there
            yield from _places(child, there)


def _is_quiet(node: ast.AST) -> bool:
    """Return whether a statement is a docstring, a call of a logger, an import, for type checkers or for tests alone."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.JoinedStr():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in QUIET
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.AnnAssign(value=None):
            return True
        case (
            ast.AnnAssign(target=ast.Name(id="conformance"))
            | ast.Assign(targets=[ast.Name(id="conformance")])
        ):
            return True
    return False


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in the place of a node."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARISONS:
            yield _with(node, ops=[COMPARISONS[type(op)](), *node.ops[1:]])
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) if type(op) in OPERATORS and not _is_text(node):
            yield _with(node, op=OPERATORS[type(op)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(value=int(value)):
            yield ast.copy_location(ast.Constant(value + 1), node)
        case ast.Constant(value=float(value)):
            yield ast.copy_location(ast.Constant(value * 2 + 1), node)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.UnaryOp | ast.Constant):  # those are changed themselves
                yield _with(node, test=ast.copy_location(ast.UnaryOp(ast.Not(), test), test))
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield _with(node, value=ast.copy_location(ast.Constant(None), value))
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign():
            yield ast.copy_location(ast.Pass(), node)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.copy_location(ast.Pass(), node)
        case ast.Continue():
            yield ast.copy_location(ast.Break(), node)
        case ast.Break():
            yield ast.copy_location(ast.Continue(), node)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """Return a copy of a node with other values of some fields."""
    own = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    return ast.copy_location(type(node)(**own | fields), node)


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in (node.left, node.right)
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _at(tree: ast.AST, path: Path) -> ast.AST:
    for name, i in path:
        value = getattr(tree, name)
        tree = value if i is None else value[i]
    return tree


def _put(tree: ast.AST, path: Path, node: ast.AST) -> None:
    *way, (name, i) = path
    parent = _at(tree, tuple(way))
    if i is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[i] = node
