"""Finds out which forms of message content a template reads: text, a list of parts, or both.

Inspects the template's syntax tree, because no file of a model contains this information.
"""

from __future__ import annotations

from jinja2 import Environment, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

_LOOP_CONTROLS = "jinja2.ext.loopcontrols"


class _Generation(Extension):
    """The tag `{% generation %} … {% endgeneration %}`, which transformers adds to Jinja."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def content_forms(source: str) -> tuple[bool, bool]:
    """Return whether a template reads content that is text, and content that is a list of parts.

    A template that loops over the content reads lists; it reads text, too, if it tests whether the content is
    a string. Any other template reads only text.

    Raises:
        TemplateSyntaxError: the template has a syntax error.
    """
    tree = Environment(extensions=[_LOOP_CONTROLS, _Generation]).parse(source)
    names = {"content"}
    for assign in tree.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name) and _is_content(assign.node, names):
            names.add(assign.target.name)
    parts = any(_is_content(loop.iter, names) for loop in tree.find_all(nodes.For))
    asks = any(test.name == "string" and _is_content(test.node, names) for test in tree.find_all(nodes.Test))
    return asks or not parts, parts


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    """Return whether an expression is a message's content, possibly with filters applied."""
    while isinstance(node, nodes.Filter) and node.node is not None:
        node = node.node
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name in names
