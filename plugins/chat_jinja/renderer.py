"""Renders one template by transformers' function for it, within limits.

Each thread has its own environment and meter; the template is compiled once. Importing this module does not import
torch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from jinja2.environment import Template

from llmfw.core.imports.hf import postpone_index

from .meter import LimitError, Limits, Meter
from .metered_environment import MeteredEnvironment

postpone_index()  # before
from transformers.utils import chat_template_utils

MAX_SOURCE = 65_536
"""Characters of a template. The largest that models come with have some 30,000. To compile the most costly of this length
(a list of numbers) takes 1.2 s of processor time, in proportion to the length. Only the start of a server compiles."""

_SCALARS = frozenset({int, float, bool, type(None)})


class Renderer:
    """One template.

    Args:
        source: text of the template.
        limits: limits of each rendering.

    Raises:
        TemplateSyntaxError: the template has one.
        LimitError: it is too long, or cannot be compiled.
    """

    def __init__(self, source: str, limits: Limits) -> None:
        if len(source) > MAX_SOURCE:
            raise LimitError(f"has {len(source)} characters; the limit is {MAX_SOURCE}")
        self._source = source
        self._limits = limits
        self._like = chat_template_utils._compile_jinja_template("").environment
        self._local = threading.local()
        try:
            self._code = MeteredEnvironment(self._like, Meter(limits)).compile(source)
        except (RecursionError, MemoryError) as error:
            raise LimitError("nests expressions or blocks too deeply to be compiled") from error
        except (SyntaxError, ValueError) as error:  # Python's own
            raise LimitError(f"cannot be compiled: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        kwargs: Mapping[str, Any],
        *,
        brief: bool = False,
    ) -> str:
        """Return the text of a conversation.

        Args:
            kwargs: further variables for the template.
            brief: whether to give up early.

        Raises:
            LimitError: it costs too much.
            NotBriefError: it is not brief.
        """
        thread = self._thread()
        thread.meter.begin((messages, tools, kwargs), brief=brief, num_messages=len(messages))
        try:
            texts, _ = thread.render(
                conversations=[messages],
                tools=[dict(tool) for tool in tools] or None,
                chat_template=self._source,
                **kwargs,
            )
        finally:
            thread.meter.end()
        return _characters(str(texts[0]))

    def _thread(self) -> _Thread:
        found: _Thread | None = getattr(self._local, "thread", None)
        if found is None:
            meter = Meter(self._limits)
            found = _Thread(meter, MeteredEnvironment(self._like, meter).template(self._code))
            self._local.thread = found
        return found


class _Thread:
    """The environment of one thread.

    Args:
        meter: of its renderings.
        template: counts by it.

    Attributes:
        render: transformers' function, which takes this template in place of one that it compiles.
    """

    def __init__(self, meter: Meter, template: Template) -> None:
        self.meter = meter
        theirs: Any = chat_template_utils.render_jinja_template
        if "_compile_jinja_template" not in theirs.__code__.co_names:
            raise RuntimeError("this version of transformers compiles chat templates in another way")
        names = {
            **theirs.__globals__,
            "_compile_jinja_template": lambda source: template,
            "_plain_template_data": self._plain,
        }
        self.render: Any = FunctionType(
            theirs.__code__, names, theirs.__name__, theirs.__defaults__, theirs.__closure__
        )
        self.render.__kwdefaults__ = theirs.__kwdefaults__

    def _plain(self, value: Any) -> Any:
        """Replace transformers' function of this name. The list of tools comes this way."""
        plain = _plain(value)
        if plain.__class__ is list:
            self.meter.trust([plain, *plain])
        return plain


def _characters(text: str) -> str:
    """Return a text; raise LimitError if it has half of a surrogate pair, which a template may create."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise LimitError(
                f"puts out U+{ord(text[error.start]):04X}, half of a surrogate pair, which is no character"
            ) from error
    return text


def _plain(value: Any) -> Any:
    """Return a copy made of JSON types. Faster than transformers' function, which also handles other types."""
    kind = value.__class__
    if kind is str or kind in _SCALARS:
        return value
    if kind is dict:
        return {
            key if key.__class__ is str else _plain(key): item if item.__class__ is str else _plain(item)
            for key, item in value.items()
        }
    if kind is list:
        return [item if item.__class__ is str else _plain(item) for item in value]
    return chat_template_utils._plain_template_data(value)
