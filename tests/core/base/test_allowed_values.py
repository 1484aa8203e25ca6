"""A setting that cannot be is refused when its struct is made, with the value and what would be right."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.allowed_values import Values, values_of
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"threads": 0}, "--threads is 0; it must be a whole number, at least 1 and at most 1024"),
    ({"threads": 1025}, "--threads is 1025; it must be a whole number, at least 1 and at most 1024"),
    ({"threads": True}, "--threads is True; it must be"),
    ({"threads": 1.5}, "--threads is 1.5; it must be"),
    ({"page_size": 10**400 * -1}, "it must be a whole number, at least 1"),
    ({"page_size": "16"}, "--page-size is '16'; it must be a whole number, at least 1"),
    ({"stream_interval": 0}, "--stream-interval is 0; it must be a whole number, at least 1"),
    ({"cuda_graph": "yes"}, "--cuda-graph is 'yes'; it must be one of on, lazy, off"),
    ({"cuda_graph_max_bs": -1}, "--cuda-graph-max-bs is -1; it must be a whole number, at least 0"),
    ({"batch_share": 1.1}, "--batch-share is 1.1; it must be a finite number, at least 0 and at most 1"),
    (
        {"batch_share": float("nan")},
        "--batch-share is nan; it must be a finite number, at least 0 and at most 1",
    ),
    (
        {"mem_fraction_static": 0},
        "--mem-fraction-static is 0; it must be a finite number, above 0 and at most 1",
    ),
    (
        {"schedule_conservativeness": float("inf")},
        "--schedule-conservativeness is inf; it must be a finite number, above 0",
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
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    for name, values in values_of(struct).items():
        assert defaults[name] in (None, msgspec.NODEFAULT) or defaults[name] in values


@pytest.mark.parametrize("struct", [EngineConfig, ServerConfig])
def test_every_number_has_declared_bounds(struct: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(struct):
        is_number = isinstance(field.default, int | float) and not isinstance(field.default, bool)
        assert not is_number or values_of(struct)[field.name].type is not None


@given(st.floats() | st.integers(-3, 3), st.floats(-2, 2), st.floats(0, 2), st.booleans())
def test_bounds_agree_with_msgspec(number: float, least: float, size: float, is_open: bool) -> None:
    most = least + size
    bounds = msgspec.Meta(gt=least, le=most) if is_open else msgspec.Meta(ge=least, le=most)
    try:
        msgspec.convert(number, Annotated[float, bounds])
        takes = True
    except msgspec.ValidationError:
        takes = False
    assert (number in Values(float, least, most, is_open=is_open)) == takes
