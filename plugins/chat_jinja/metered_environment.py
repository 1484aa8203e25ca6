"""jinja2's sandbox with transformers' filters and globals. Counts all operations that take time or memory.

Operations that multiply sizes (`*`, `center`, `replace`, `join`, a format's width) are checked before they
run. Unknown methods of Python's built-in types are refused, and unknown filters accept only small values.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import TemplateError
from jinja2.environment import Template
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Macro, markup_join
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from markupsafe import Markup, escape

from .filters import guard_filters, guard_tests
from .formats import allow_percent, allow_spec
from .meter import SMALL, LimitError, Meter
from .metered_code import NAMES, PREFIX, MeteredCode
from .methods import allow_method

MAX_STRFTIME = 1000
_METHODS = (BuiltinMethodType, MethodType)
_OF_DICTS = frozenset(dir(dict))
_DATA = (str, bytes, list, tuple, dict, set, frozenset, int, float, complex, range, type(None))


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """A Jinja environment that counts the cost of rendering. Each thread has its own.

    Args:
        like: transformers' environment, from which filters, globals and tags are taken.
        meter: meter that counts the cost.
    """

    code_generator_class = MeteredCode
    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, like: Any, meter: Meter) -> None:
        extensions = [type(each) for each in like.extensions.values()]
        super().__init__(
            trim_blocks=like.trim_blocks, lstrip_blocks=like.lstrip_blocks, extensions=extensions
        )
        self.meter = meter
        self.concat: Any = meter.join
        self.filters: Any = guard_filters(like.filters, meter)
        self.tests: Any = guard_tests(like.tests, meter)
        self.globals = dict(like.globals)
        self.globals.pop("lipsum", None)  # random text
        self.globals["namespace"] = _namespace_like(like.globals["namespace"])
        self.globals["strftime_now"] = _strftime_like(like.globals["strftime_now"])
        self.binop_table |= {"*": self._multiply, "**": self._power, "%": self._remainder}

    def template(self, code: Any) -> Template:
        """Return a template from compiled code, with the meter's functions in its module."""
        template = Template.from_code(self, code, dict(self.globals))
        functions = {name: getattr(self.meter, name) for name in NAMES if hasattr(self.meter, name)}
        functions |= {"concat": self._concat, "escape": self._escape}
        template.root_render_func.__globals__.update(
            {PREFIX + name: function for name, function in functions.items()}
        )
        return template

    def getattr(self, obj: Any, attribute: str) -> Any:
        if obj.__class__ is dict and attribute not in _OF_DICTS:  # faster than jinja2's own
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        meter = self.meter
        if len(args) > SMALL:
            meter.tick(len(args))
        if obj.__class__ is Macro and not any(map(_is_tuple, args)):
            return context.call(obj, *args, **kwargs)  # the macro's output is counted
        if isinstance(obj, _METHODS) and isinstance(obj.__self__, _DATA):
            if kwargs:
                kwargs.pop("_loop_vars", None)  # added by jinja2 for functions that take a context
                kwargs.pop("_block_vars", None)
            allow_method(meter, obj, *args, **kwargs)
            return meter.made(obj(*args, **kwargs))
        if isinstance(obj, BuiltinMethodType):
            raise SecurityError(f"it calls {obj.__qualname__}, which templates may not call")
        for value in filter(_is_tuple, args):  # for example a macro's varargs; Python may hash a tuple
            meter.weigh(value)
        return meter.made(super().call(context, obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if not isinstance(value, _METHODS) or value.__name__ not in (
            "format",
            "format_map",
        ):
            return None
        source = value.__self__
        if not isinstance(source, str):
            return None
        is_map = value.__name__ == "format_map"

        def formatted(*args: Any, **kwargs: Any) -> str:
            if isinstance(source, Markup):
                raise SecurityError("it calls format() of an escaped text, which templates may not call")
            if is_map and (kwargs or len(args) != 1):
                raise TypeError("format_map() takes one argument")
            fields, named = ((), args[0]) if is_map else (args, kwargs)
            return _MeteredFormatter(self).vformat(source, fields, named)

        return formatted

    def _multiply(self, left: Any, right: Any) -> Any:
        for value, times in ((left, right), (right, left)):
            if isinstance(times, int) and not isinstance(value, int | float):
                if isinstance(value, str):
                    self.meter.allow_text(len(value) * times)
                else:
                    self.meter.allow_weight(self.meter.touch(value) * times)
        if isinstance(left, int) and isinstance(right, int):
            self.meter.allow_bits(left.bit_length() + right.bit_length())
        return self.meter.made(left * right)

    def _power(self, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            self.meter.allow_bits(left.bit_length() * max(right, 0))
        return self.meter.made(left**right)

    def _remainder(self, left: Any, right: Any) -> Any:
        if isinstance(left, str | bytes):
            allow_percent(self.meter, left, right)
        return self.meter.made(left % right)

    def _concat(self, eval_ctx: Any, values: tuple[Any, ...]) -> str:
        texts = [value if value.__class__ is str else self.meter.text_of(value) for value in values]
        self.meter.allow_text(sum(map(len, texts)))
        return markup_join(values) if eval_ctx.volatile or eval_ctx.autoescape else "".join(texts)

    def _escape(self, value: Any) -> str:
        self.meter.touch(value)
        return self.meter.output(escape(value))


class _MeteredFormatter(SandboxedFormatter):
    """A sandboxed `str.format` that counts its fields."""

    _env: MeteredEnvironment

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self._env.meter.touch(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        allow_spec(format_spec)
        self._env.meter.touch(value)
        return self._env.meter.output(super().format_field(value, format_spec))


def _is_tuple(value: Any) -> bool:
    return value.__class__ is tuple


def _namespace_like(kind: Any) -> Any:
    """Return a namespace class that a template cannot output, because nested namespaces could fill memory."""

    class Namespace(kind):  # type: ignore[misc]
        def __repr__(self) -> str:
            raise TemplateError("a namespace cannot be put out")

    return Namespace


def _strftime_like(strftime_now: Any) -> Callable[[str], str]:
    def limited(format: str) -> str:
        if len(format) > MAX_STRFTIME:
            raise LimitError(
                f"asks for a date in a format of {len(format)} characters; the limit is {MAX_STRFTIME}"
            )
        return str(strftime_now(format))

    return limited
