"""Computes the cost of running a template's block once, from its syntax tree."""

from __future__ import annotations

from collections.abc import Iterable

from jinja2 import nodes

UNITS_OF_BRANCH = 2
"""A branch that costs at most this many units is counted with the block around it, whether it runs or not."""

_CHARACTERS_OF_UNIT = 256
_OPERATIONS_OF_UNIT = 16


class Operations:
    """Computes the costs of the blocks of one template, and caches them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def units(self, statements: Iterable[nodes.Node]) -> int:
        """Return the cost of running a block once, in units.

        Includes small branches, but no other nested blocks.
        """
        num = size = 0
        for statement in statements:
            more, characters = self._cost(statement)
            num, size = num + more, size + characters
        return 1 + num // _OPERATIONS_OF_UNIT + size // _CHARACTERS_OF_UNIT

    def _cost(self, node: nodes.Node) -> tuple[int, int]:
        """Return a statement's or expression's number of operations, and of characters in literals."""
        known = self._known.get(id(node))
        if known is not None:
            return known
        num, size = 1, 0
        if isinstance(node, nodes.TemplateData | nodes.Const):
            size = len(str(node.value if isinstance(node, nodes.Const) else node.data))
        inner = list(node.iter_child_nodes(exclude=("body", "elif_", "else_")))
        if isinstance(node, nodes.If):
            small = (body for body in branches(node) if self.units(body) <= UNITS_OF_BRANCH)
            inner += [each for body in small for each in body]
            inner += [branch.test for branch in node.elif_]
        for each in inner:
            more, characters = self._cost(each)
            num, size = num + more, size + characters
        self._known[id(node)] = num, size
        return num, size


def branches(node: nodes.If) -> list[list[nodes.Node]]:
    """Return the blocks of an `if` statement. At most one of these blocks runs."""
    return [node.body, *(branch.body for branch in node.elif_), node.else_]
