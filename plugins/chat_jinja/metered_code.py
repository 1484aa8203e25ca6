"""Compiles templates to Python code that calls a `Meter` whenever it loops, or creates or copies values.

In addition to jinja2's own names, the generated code uses the functions in `NAMES`, which the environment
puts into the template's module. A template's constants are not counted, because they are no longer than the
template.
"""

# ruff: noqa: N802 - the names of jinja2's visitors

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame

from .operations import UNITS_OF_BRANCH, Operations, branches

PREFIX = "meter_"
NAMES = ("concat", "escape", "iterate", "made", "output", "seen", "tick")
_SUMMANDS = 8
"""Number of summands up to which a sum is counted only once."""


class MeteredCode(CodeGenerator):
    """jinja2's code generator, extended by calls of the meter's functions.

    At compile time, evaluates only literals.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.optimizer = None
        self._opened: dict[int, str] = {}
        self._branches: set[int] = set()
        self._operations = Operations()
        self._summands: set[int] = set()

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        opening = self._opened.get(id(node))
        if opening is None:
            return super().visit(node, *args, **kwargs)
        self.write(opening)
        super().visit(node, *args, **kwargs)
        self.write(")")
        return None

    def blockvisit(self, nodes: Any, frame: Frame) -> None:
        units = self._operations.units(nodes)
        if id(nodes) not in self._branches or units > UNITS_OF_BRANCH:
            self.writeline(f"{PREFIX}tick({units})")
        super().blockvisit(nodes, frame)

    def visit_If(self, node: nodes.If, frame: Frame) -> None:
        self._branches |= {id(body) for body in branches(node)}
        super().visit_If(node, frame)

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        self._opened[id(node.iter)] = f"{PREFIX}iterate("
        if node.test is not None:
            self._opened[id(node.test)] = f"({PREFIX}tick({self._operations.units([node.test])}) or "
        super().visit_For(node, frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        if id(node) in self._summands:
            super().visit_Add(node, frame)
            return
        left: nodes.Expr = node
        for _ in range(_SUMMANDS):  # a sum is counted once, unless it is long
            if not isinstance(left, nodes.Add):
                break
            self._summands.add(id(left))
            left = left.left
        self._call("made", lambda: super(MeteredCode, self).visit_Add(node, frame))

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        def write() -> None:
            self.write("context.eval_ctx, (")
            for each in node.nodes:
                self.visit(each, frame)
                self.write(", ")
            self.write(")")

        self._call("concat", write)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._made(node, super().visit_List, frame, is_plain=all(map(_is_literal, node.items)))

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        is_plain = node.ctx != "load" or all(map(_is_literal, node.items))
        self._made(node, super().visit_Tuple, frame, is_plain=is_plain)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        is_plain = all(_is_literal(item.key) and _is_literal(item.value) for item in node.items)
        self._made(node, super().visit_Dict, frame, is_plain=is_plain)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        self._made(node, super().visit_Getitem, frame, is_plain=not isinstance(node.arg, nodes.Slice))

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """Write code that counts values before they are compared or searched.

        Comparisons with a literal are not counted, because their time depends only on the shorter operand.
        Searches (`in`, `not in`) within a literal are not counted either. Searches for a literal are counted,
        because they may go through the whole other operand.
        """
        left = node.expr
        for operand in node.ops:
            is_search = operand.op in ("in", "notin")
            if not (_is_literal(operand.expr) or (_is_literal(left) and not is_search)):
                self._opened[id(operand.expr)] = f"{PREFIX}seen("
            left = operand.expr
        super().visit_Compare(node, frame)

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if frame.eval_ctx.volatile:
            self.write(f"({PREFIX}escape if context.eval_ctx.autoescape else {PREFIX}output)(")
        else:
            self.write(f"{PREFIX}escape(" if frame.eval_ctx.autoescape else f"{PREFIX}output(")

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        self._summands |= {id(child) for child in node.nodes if _num_summands(child) <= _SUMMANDS}
        for child in node.nodes:  # the call for output counts these values
            left: Any = child
            while id(left) in self._summands and isinstance(left, nodes.Add):
                left = left.left
                self._summands.add(id(left))
        super().visit_Output(node, frame)

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        if not isinstance(node, nodes.Const | nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def _made(self, node: Any, write: Callable[[Any, Frame], None], frame: Frame, *, is_plain: bool) -> None:
        if is_plain:
            write(node, frame)
        else:
            self._call("made", lambda: write(node, frame))

    def _call(self, name: str, write: Callable[[], None]) -> None:
        self.write(f"{PREFIX}{name}(")
        write()
        self.write(")")


def _num_summands(node: nodes.Node) -> int:
    return 1 + _num_summands(node.left) if isinstance(node, nodes.Add) else 1


def _is_literal(node: nodes.Expr) -> bool:
    """Return whether an expression is a literal, or a list of literals."""
    if isinstance(node, nodes.List | nodes.Tuple):
        return all(map(_is_literal, node.items))
    return isinstance(node, nodes.Const)
