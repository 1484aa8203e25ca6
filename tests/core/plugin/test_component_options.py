"""Options of parts keep their types from the file to the part, and are told as text."""

from __future__ import annotations

import msgspec
import pytest

from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.policy_choice import PolicyChoice
from llmfw.core.plugin.component_options import converted, option_text
from llmfw.core.plugin.plugins import load_plugins

VALUES = ["text", "8", 8, 0.5, True, ["a", 1], {"a": [1]}]


@pytest.mark.parametrize("value", VALUES)
def test_option_types_survive_the_engine_s_transport(value):
    config = EngineConfig(model="m", options={"policy.x": value})
    came = msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=EngineConfig)
    assert came.options == {"policy.x": value}
    assert type(came.options["policy.x"]) is type(value)


@pytest.mark.parametrize("value", VALUES[2:])
def test_options_as_text_convert_to_equal_values(value):
    struct = msgspec.defstruct("Options", [("x", type(value))])
    assert converted({"x": option_text(value)}, struct) == converted({"x": value}, struct) == struct(value)


def test_the_active_policy_reports_options_as_text():
    choice = PolicyChoice(load_plugins().registry, "lpm", {"policy.max_overtaken": 3})
    assert choice.info().options == {"max_overtaken": "3"}
