"""Checks a component's class without building it: its methods' signatures, and its options.

`Entry.load` checks the methods of each component that a server uses; building a component checks its options.
`llmfw plugins doctor` checks both of all components.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec

from llmfw.core.base.described import described

from .component_options import default_of, fault_of_default
from .containment import raise_if_process_ends
from .one_line import one_line


def problems_in(component: type[Any]) -> Iterator[str]:
    """Yield the problems of a component's class, one clause each."""
    yield from wrong_methods(component)
    yield from _wrong_options(component, _interface(component))


def wrong_methods(component: type[Any]) -> Iterator[str]:
    """Yield a problem for each method that cannot be called as the interface of a component defines."""
    yield from _wrong_signatures(component, _interface(component))


def _interface(component: type[Any]) -> type[Any]:
    """Return the interface that a component implements: its nearest base class from `llmfw.core`."""
    return next(base for base in component.__mro__ if base.__module__.startswith("llmfw.core."))


def _wrong_signatures(component: type[Any], interface: type[Any]) -> Iterator[str]:
    """Yield a problem for each method that cannot be called as the interface defines."""
    for name, promised in vars(interface).items():
        if name.startswith("_") and name != "__init__":
            continue
        function = getattr(promised, "__func__", promised)
        given = getattr(component, name)
        if inspect.isfunction(function) and callable(given):
            yield from _wrong_call(
                name, function, given, further=_extra_keywords(component, interface, name, function)
            )
            if inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(given):
                yield f"{name} is not an async function, as the interface's is"
            elif inspect.iscoroutinefunction(given) and not _may_be_awaited(function):
                yield f"{name} is an async function; the interface's is not, and nothing would await it"


def _may_be_awaited(promised: Any) -> bool:
    """Return whether a function of an interface is async or returns an awaitable."""
    returned = str(promised.__annotations__.get("return", ""))
    return (
        inspect.iscoroutinefunction(promised)
        or re.search("Awaitable|Coroutine|Future|Any", returned) is not None
    )


def _extra_keywords(component: type[Any], interface: type[Any], name: str, promised: Any) -> Collection[str]:
    """Return the keyword arguments that a method receives in addition to those of the interface.

    For example, the constructor of a component with `Options` receives `options`.
    """
    own = getattr(component, "Options", None)
    has_own = own is not None and own is not getattr(interface, "Options", None)
    is_told = "options" in inspect.signature(promised).parameters
    return ("options",) if name == "__init__" and has_own and not is_told else ()


def _wrong_call(name: str, promised: Any, given: Any, further: Collection[str]) -> Iterator[str]:
    parameters = [*inspect.signature(promised).parameters.values()]
    is_bound = inspect.ismethod(given)
    try:
        own = inspect.signature(given)
    except (TypeError, ValueError):  # for example a class in C, whose signature is not known
        return
    called = parameters[1:] if is_bound else parameters
    positional = [None for p in called if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords: dict[str, Any] = {p.name: None for p in called if p.kind is p.KEYWORD_ONLY}
    keywords |= dict.fromkeys(further)
    if any(p.kind is p.VAR_KEYWORD for p in called):
        keywords["any_other_keyword"] = None
    try:
        own.bind(*positional, **keywords)
    except TypeError as error:
        words = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters[1:])
        yield f"{name} cannot be called as the interface's {name}({words}) is: {error}"


def _wrong_options(component: type[Any], interface: type[Any]) -> Iterator[str]:
    own = getattr(component, "Options", None)
    promised = getattr(interface, "Options", None)
    if own is None or own is promised:
        return
    if not (isinstance(own, type) and issubclass(own, msgspec.Struct)):
        yield "Options is not a msgspec Struct"
    elif promised is None:
        yield f"has Options, which a {interface.__name__} does not take"
    elif not issubclass(own, promised):
        yield f"Options does not extend {interface.__name__}.Options"
    else:
        yield from _wrong_defaults(own)


def _wrong_defaults(struct: type[msgspec.Struct]) -> Sequence[str]:
    """Return a problem for each option whose default is not a valid value of the option."""
    try:
        fields = [(field, fault_of_default(field)) for field in msgspec.structs.fields(struct)]
        return [
            f"the default of its option {field.encode_name!r}, {default_of(field)!r}, is refused: {fault}"
            for field, fault in fields
            if fault
        ]
    except BaseException as error:  # noqa: BLE001 - a plugin's types may raise anything
        raise_if_process_ends(error)
        return [f"Options cannot be read: {one_line(described(error))}"]
