"""Options of parts keep their types from the file to the part, and are told as text."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest

from llmfw.core.base.allowed_values import as_text
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError
from llmfw.core.engine.generation.policy_choice import PolicyChoice
from llmfw.core.interfaces.grammar import GrammarBackend
from llmfw.core.plugin.component_options import converted
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

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
    assert converted({"x": as_text(value)}, struct) == converted({"x": value}, struct) == struct(value)


def test_the_active_policy_reports_options_as_text():
    choice = PolicyChoice(load_plugins().registry, "lpm", {"policy.max_overtaken": 3})
    assert choice.info().options == {"max_overtaken": "3"}


class BrokenBackend(GrammarBackend):
    """A grammar backend whose options have defaults that they refuse."""

    class Options(GrammarBackend.Options):
        mode: Literal["fast", "exact"] = "slow"  # type: ignore[assignment]
        size: Annotated[int, msgspec.Meta(ge=1)] = 4

    def __init__(self, tokenizer: Any, vocab_size: int, *, options: Options) -> None: ...

    def compile(self, spec: Any) -> Any: ...

    def fill_masks(self, grammars: Any, masks: Any) -> None: ...


def test_a_refused_default_names_its_option():
    entry = Entry("grammar", "bad", f"{__name__}:BrokenBackend", "ext", "llmfw-ext", "1.2")
    with pytest.raises(ComponentError) as caught:
        entry.build_options({})
    [line] = str(caught.value).splitlines()
    for part in ("'bad'", "llmfw-ext", "'mode'", "'slow'", "one of fast, exact", "-o grammar.mode=VALUE"):
        assert part in line
    assert entry.build_options({"grammar.mode": "fast"}).mode == "fast"
