"""Renders one template with transformers' own function, within limits.

Each thread has its own environment and meter; the template is compiled once. Importing this module does not
import torch.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from jinja2.environment import Template

from llmfw.core.imports.hf import import_templates

from .meter import LimitError, Limits, Meter
from .metered_environment import MeteredEnvironment

chat_template_utils: Any = import_templates()

MAX_SOURCE = 65_536
"""Longest template, in characters. The largest ones that come with models have about 30,000.

Compile time is proportional to length. The most costly template of this length, a list of numbers, takes
1.2 s of processor time. Templates are compiled only when the server starts.
"""

_SCALARS = frozenset({int, float, bool, type(None)})


class Renderer:
    """Renders one template.

    Args:
        source: source text of the template.
        limits: limits of each rendering.

    Raises:
        TemplateSyntaxError: the template has a syntax error.
        LimitError: the template is too long, or cannot be compiled.
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
        except (SyntaxError, ValueError) as error:  # from Python, about the generated code
            raise LimitError(f"cannot be compiled: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        kwargs: Mapping[str, Any],
        *,
        brief: bool = False,
    ) -> str:
        """Render a conversation to text.

        Args:
            messages: messages of the conversation.
            tools: tools to pass to the template.
            kwargs: further variables of the template.
            brief: whether to abort a rendering that is not brief.

        Raises:
            LimitError: the rendering costs too much.
            NotBriefError: the rendering is not brief, although `brief` is set.
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
    """The meter, template and rendering function of one thread.

    Args:
        meter: meter of the thread's renderings.
        template: template that reports to `meter`.

    Attributes:
        render: transformers' `render_jinja_template`, modified to use `template` instead of compiling one.
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
        """Convert a value to JSON types, in place of transformers' function of this name.

        Exempts lists, such as the list of tools, from measuring (`Meter.trust`).
        """
        plain = _plain(value)
        if plain.__class__ is list:
            self.meter.trust([plain, *plain])
        return plain


def _characters(text: str) -> str:
    """Return `text`; raise LimitError if it has a lone surrogate, which a template can write as an escape."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise LimitError(
                f"puts out U+{ord(text[error.start]):04X}, half of a surrogate pair, which is not a character"
            ) from error
    return text


def _plain(value: Any) -> Any:
    """Return a copy that consists of JSON types.

    Copies dicts, lists and scalars faster than transformers' function, which converts all other types.
    """
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
