"""A setting that cannot be is refused when its struct is made, with the value and what would be right."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.inspect import FloatType, IntType

from llmfw.core.base.allowed_values import fault_of, kind_of
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting import declared

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"threads": 0}, "--threads is 0; it must be a whole number, 1 to 1024"),
    ({"threads": 1025}, "--threads is 1025; it must be a whole number, 1 to 1024"),
    ({"threads": True}, "--threads is True; it must be"),
    ({"threads": 1.5}, "--threads is 1.5; it must be"),
    ({"page_size": 10**400 * -1}, "it must be a whole number, 1 or more"),
    ({"page_size": "16"}, "--page-size is '16'; it must be a whole number, 1 or more"),
    ({"stream_interval": 0}, "--stream-interval is 0; it must be a whole number, 1 or more"),
    ({"cuda_graph": "yes"}, "--cuda-graph is 'yes'; it must be one of on, lazy, off"),
    ({"cuda_graph_max_bs": -1}, "--cuda-graph-max-bs is -1; it must be a whole number, 0 or more"),
    ({"batch_share": 1.1}, "--batch-share is 1.1; it must be a finite number, 0 to 1"),
    (
        {"batch_share": float("nan")},
        "--batch-share is nan; it must be a finite number, 0 to 1",
    ),
    (
        {"mem_fraction_static": 0},
        "--mem-fraction-static is 0; it must be a finite number, more than 0, at most 1",
    ),
    (
        {"schedule_conservativeness": float("inf")},
        "--schedule-conservativeness is inf; it must be a finite number, more than 0",
    ),
]


@pytest.mark.parametrize(("settings", "said"), WRONG)
def test_an_invalid_value_names_the_allowed_ones(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EngineConfig(model="m", **settings)


def test_modified_copies_are_validated() -> None:
    with pytest.raises(ConfigError, match="--page-size is 0"):
        msgspec.structs.replace(EngineConfig(model="m"), page_size=0)


@pytest.mark.parametrize("struct", [EngineConfig, ServerConfig])
def test_the_defaults_are_valid(struct: type[msgspec.Struct]) -> None:
    for each in declared(struct):
        assert each.default is msgspec.NODEFAULT or not each.fault(each.default)


@pytest.mark.parametrize("struct", [EngineConfig, ServerConfig])
def test_every_number_has_declared_bounds(struct: type[msgspec.Struct]) -> None:
    for each in declared(struct):
        kind = kind_of(each.annotation)
        if isinstance(kind, IntType | FloatType):
            assert {kind.ge, kind.gt} != {None}, each.field


@given(st.floats() | st.integers(-3, 3), st.floats(-2, 2), st.floats(0, 2), st.booleans())
def test_numbers_are_finite_and_within_bounds(
    number: float, least: float, size: float, is_open: bool
) -> None:
    most = least + size
    bounds = msgspec.Meta(gt=least, le=most) if is_open else msgspec.Meta(ge=least, le=most)
    is_allowed = (least < number if is_open else least <= number) and number <= most
    assert (fault_of(number, Annotated[float, bounds]) == "") == is_allowed
    assert (fault_of(number, float) == "") == math.isfinite(number)


def test_a_secret_is_not_quoted() -> None:
    with pytest.raises(ConfigError, match=r"^--admin-api-key is a secret; it must be text$"):
        ServerConfig(served_model_name="m", admin_api_key=12345)  # type: ignore[arg-type]
