"""Makes exceptions of plugins safe to handle: reading a disarmed exception runs no code of the plugin.

`logging`, `contextlib`, asyncio and llmfw read an exception's message, notes, cause, context and more. A
class may define each of these itself, with code that raises, for example, SystemExit. The code that handles
the exception would then fail, far away from the plugin.
"""

from __future__ import annotations

from abc import ABCMeta
from collections import deque
from functools import cache
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from . import errors
from .described import described, members_of, message_of
from .process_end import raise_if_end

MAX_CHAIN = 50
"""Largest number of exceptions that are connected by causes, contexts and groups; causes and contexts beyond it are cut.
A plugin that raises `from` its last error would make the chain longer each time."""

_READ = frozenset(
    {
        *(
            "__getattribute__",
            "__getattr__",
            "__setattr__",
            "__delattr__",
            "__class__",
            "__bool__",
            "__len__",
        ),
        *("__cause__", "__context__", "__suppress_context__", "__traceback__", "__notes__", "args"),
        *("with_traceback", "add_note"),
    }
)
"""Attributes that code uses when it handles an exception. A class that defines one of them is replaced."""

# Read from Python's own classes, because a plugin's class or metaclass may redefine attribute access.
_cause: Any = vars(BaseException)["__cause__"]
_context: Any = vars(BaseException)["__context__"]
_args: Any = vars(BaseException)["args"]
_traceback: Any = vars(BaseException)["__traceback__"]
_attributes: Any = vars(BaseException)["__dict__"]
_class: Any = vars(object)["__class__"]
_name: Any = vars(type)["__name__"]
_mro: Any = vars(type)["__mro__"]
_members: Any = vars(type)["__dict__"]
_flags: Any = vars(type)["__flags__"]
_IS_HEAP_TYPE = 1 << 9
"""Flag of classes that are not built into Python."""


def disarm(error: BaseException) -> bool:
    """Replace the classes of an exception, its causes and contexts, if handling them would run their code.

    Works in place. The new class has the old name; its only base is the nearest one that is Python's or
    llmfw's. The message stays, or says that it cannot be read.

    Returns:
        Whether all of them are safe now. A class with a layout of its own, such as one with `__slots__`,
        stays unsafe.
    """
    found, waiting, are_safe = {id(error)}, deque([error]), True
    while waiting:
        each = waiting.popleft()
        are_safe = (_is_safe(each) or _replace_class(each)) and are_safe
        for link in (_cause, _context):
            linked = link.__get__(each)
            if linked is not None and id(linked) not in found:
                if len(found) < MAX_CHAIN:
                    found.add(id(linked))
                    waiting.append(linked)
                else:
                    link.__set__(each, None)
        members = members_of(each)
        if len(found) + len(members) > MAX_CHAIN:
            are_safe = False
        else:
            found.update(map(id, members))
            waiting.extend(members)
    return are_safe


def readable(error: BaseException) -> BaseException:
    """Return an exception that is safe to log and to test: the same one, disarmed, or a replacement."""
    return (
        error if disarm(error) else RuntimeError(described(error)).with_traceback(_traceback.__get__(error))
    )


def causes_of(error: BaseException) -> list[BaseException]:
    """Return an exception and its chain of causes, without running code of their classes."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and len(found) < MAX_CHAIN and not any(each is other for other in found):
        found.append(each)
        each = _cause.__get__(each)
    return found


def _is_safe(error: BaseException) -> bool:
    kind = type(error)
    if type(kind) not in (type, ABCMeta):
        return False
    base = _trusted_base(kind)
    read = _READ | _fields(base)
    for each in _mro.__get__(kind):
        if each is base:
            break
        if not read.isdisjoint(_members.__get__(each)):
            return False
    notes = dict.get(_attributes.__get__(error), "__notes__", [])
    if type(notes) not in (list, tuple) or not all(type(note) is str for note in notes):
        return False
    try:
        return type(str(error)) is str
    except BaseException as fault:  # noqa: BLE001 - the code of a plugin may raise anything
        raise_if_end(fault)
        return False


def _replace_class(error: BaseException) -> bool:
    said, kind = message_of(error), type(error)
    base, module = _trusted_base(kind), _members.__get__(kind).get("__module__")
    dict.pop(_attributes.__get__(error), "__notes__", None)
    if kind is base:  # only the message or a note has code of its own
        _args.__set__(error, (said,))
        return _is_safe(error)
    members = {"__str__": lambda self: said, "__module__": module if type(module) is str else __name__}
    try:
        _class.__set__(error, type(_name.__get__(kind), (base,), members))
    except TypeError:
        return False
    return True


def _trusted_base(kind: type) -> type:
    """Return the nearest class that is Python's own, or one of `errors`."""
    for each in _mro.__get__(kind):
        if not _flags.__get__(each) & _IS_HEAP_TYPE or vars(errors).get(_name.__get__(each)) is each:
            return each  # type: ignore[no-any-return]
    raise AssertionError(kind)


@cache
def _fields(base: type) -> frozenset[str]:
    """Return the names of the fields of a class of Python, such as `filename` of SyntaxError."""
    return frozenset(
        name
        for each in _mro.__get__(base)
        for name, member in _members.__get__(each).items()
        if isinstance(member, GetSetDescriptorType | MemberDescriptorType)
        and name not in ("__dict__", "__weakref__")
    )
