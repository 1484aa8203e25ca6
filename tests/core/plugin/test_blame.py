"""The component whose code raised is found by its module, the innermost first."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from llmfw.core.plugin.blame import component_at_fault
from llmfw.core.plugin.registry import Entry


def fail() -> None:
    raise ValueError("oh")


def call(inner: Callable[[], object]) -> None:
    inner()


def wrap(inner: Callable[[], object]) -> None:
    try:
        inner()
    except ValueError as error:
        raise RuntimeError("from elsewhere") from error


def within(module: str, own: Any) -> FunctionType:
    """Return one of these functions, as if it were in another module."""
    return FunctionType(own.__code__, {"__name__": module, "__builtins__": vars(builtins)})


def entry(kind: str, path: str) -> Entry:
    return Entry(kind, path.rpartition(":")[2], path, "ext", "llmfw-ext", "1.2")


ATTENTION = entry("attention", "ext.attention:Fast")
SCHEME = entry("quantization_scheme", "ext.scheme:Small")
OTHER = entry("module_pass", "other:Pass")
COMPONENTS = [ATTENTION, SCHEME, OTHER]


def raised(*functions: FunctionType) -> Exception:
    """Return what is raised if each function calls the next one."""
    call = functions[-1]
    for outer in reversed(functions[:-1]):
        call = lambda outer=outer, inner=call: outer(inner)  # type: ignore[assignment]
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("ext.scheme", SCHEME),
        ("ext.attention", ATTENTION),
        ("ext.kernels", ATTENTION),  # of the package's components, the first
        ("ext.attention_more", ATTENTION),
        ("extra.scheme", None),
        ("other", OTHER),
        ("other.more", None),
    ],
)
def test_a_component_is_its_module_or_package(module: str, expected: Entry | None) -> None:
    assert component_at_fault(raised(within(module, fail)), COMPONENTS) == expected


def test_the_innermost_component_is_at_fault() -> None:
    functions = within("other", call), within("ext.scheme", call), within("library", fail)
    assert component_at_fault(raised(*functions), COMPONENTS) == SCHEME


def test_causes_are_looked_at_first() -> None:
    outer = within("other", wrap)
    assert component_at_fault(raised(outer, within("ext.scheme", fail)), COMPONENTS) == SCHEME
    assert component_at_fault(raised(outer, within("library", fail)), COMPONENTS) == OTHER
