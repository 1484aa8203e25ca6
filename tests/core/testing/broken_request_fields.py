"""Request fields that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import pytest

from llmfw.core import RequestError, RequestField
from llmfw.core.testing import RequestFieldTests


class Broken(RequestField):
    """A field of even numbers."""

    value_type: Any = int
    conformance: ClassVar = {"accepted": (0, 2, 400), "refused": (1, "2")}

    def validate(self, value: Any) -> Any:
        if value % 2:
            raise ValueError("it must be even")
        return value


class HasNoType(Broken):
    value_type = object()


class HasAWrongDefault(Broken):
    default = "two"


class HasAnUnknownRoute(Broken):
    routes = ("/v1/embeddings",)


class ForgetsToReturn(Broken):
    def validate(self, value: Any) -> Any:
        super().validate(value)


class ReturnsAnObject(Broken):
    def validate(self, value: Any) -> Any:
        return memoryview, super().validate(value)


class ReturnsALargeInteger(Broken):
    def validate(self, value: Any) -> Any:
        return super().validate(value) + 2**70


class ReturnsNaN(Broken):
    def validate(self, value: Any) -> Any:
        return [super().validate(value), float("nan")]


class HasAnInfiniteDefault(Broken):
    value_type = float
    default = float("inf")


class AcceptsWrongValues(Broken):
    def validate(self, value: Any) -> Any:
        return value


class FailsForZero(Broken):
    def validate(self, value: Any) -> Any:
        return 100 // super().validate(value)


class NamesAnotherField(Broken):
    def validate(self, value: Any) -> Any:
        if value % 2:
            raise RequestError("it must be even", param="even")
        return value


class CountsCalls(Broken):
    count = 0

    def validate(self, value: Any) -> Any:
        self.count += 1
        return super().validate(value) + self.count


class ChangesAfterFifty(Broken):
    count = 0

    def validate(self, value: Any) -> Any:
        self.count += 1
        return super().validate(value) + (self.count > 500)


class Sleeps(Broken):
    def validate(self, value: Any) -> Any:
        time.sleep(0.003)
        return super().validate(value)


class MakesMuch(Broken):
    def validate(self, value: Any) -> Any:
        return [super().validate(value)] * 20_000


class KeepsEveryValue(Broken):
    def __init__(self, options: RequestField.Options) -> None:
        super().__init__(options)
        self.seen: list[int] = []

    def validate(self, value: Any) -> Any:
        self.seen.append(value)
        return super().validate(value)


class OfKind(RequestFieldTests):
    kind: type[RequestField]

    @pytest.fixture
    def field(self) -> RequestField:
        return self.kind(self.kind.Options())


def test_class(kind: type[RequestField]) -> Any:
    """Return a test class for a field."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in Broken.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
