"""The request fields of DRY and XTC take the values that llama.cpp's server takes, and no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from llmfw.core import RequestField
from llmfw.core.testing import RequestFieldTests
from llmfw.plugins.samplers import fields

FIELDS = [
    fields.XTCProbability,
    fields.XTCThreshold,
    fields.DRYMultiplier,
    fields.DRYBase,
    fields.DRYAllowedLength,
    fields.DRYPenaltyLastN,
    fields.DRYSequenceBreakers,
]


class TestFields(RequestFieldTests):
    @pytest.fixture(params=FIELDS)
    def field(self, request: pytest.FixtureRequest) -> RequestField:
        found: RequestField = request.param(request.param.Options())
        return found


class TestBreakers(RequestFieldTests):
    """With the bounds as numbers, which the class's own examples take from its constants."""

    @pytest.fixture
    def field(self) -> RequestField:
        return fields.DRYSequenceBreakers(fields.DRYSequenceBreakers.Options())

    @pytest.fixture
    def accepted(self) -> list[Any]:
        return [[], ["x" * 64] * 32, '["\\n", "*"]']

    @pytest.fixture
    def refused(self) -> list[Any]:
        return [[""], ["x"] * 33, ["x" * 65], "*", 1]


def test_breakers_may_be_json_text() -> None:
    field = fields.DRYSequenceBreakers(fields.DRYSequenceBreakers.Options())
    assert field.validate('["\\n", ":"]') == ["\n", ":"]


@pytest.mark.parametrize(("num", "length", "fits"), [(32, 64, True), (33, 1, False), (1, 65, False)])
def test_breakers_have_the_documented_bounds(num: int, length: int, fits: bool) -> None:
    field = fields.DRYSequenceBreakers(fields.DRYSequenceBreakers.Options())
    given = ["x" * length] * num
    try:
        field.validate(msgspec.convert(given, field.value_type))
    except (ValueError, msgspec.ValidationError):
        assert not fits
    else:
        assert fits
