"""What a declaration says of a setting in words is what the engine does."""

from __future__ import annotations

import msgspec
import pytest

from llmfw.api.settings.options import setting_options
from llmfw.core.base.allowed_values import choices_of
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting import declared
from llmfw.core.interfaces.kv_dtype_names import KV_DTYPE_BYTES

UNSET = {each.field: each.setting.unset for each in declared(EngineConfig)}


@pytest.mark.parametrize("struct", [EngineConfig, ServerConfig])
def test_every_field_is_a_declared_setting(struct: type[msgspec.Struct]) -> None:
    assert {each.field for each in declared(struct)} == {*struct.__struct_fields__} - {"model", "place"}


def test_undecided_defaults_are_described_in_words() -> None:
    for struct in (EngineConfig, ServerConfig):
        for each in declared(struct):
            is_open = isinstance(each.default, bool | tuple | dict) or each.default in (
                None,
                msgspec.NODEFAULT,
            )
            assert not is_open or each.setting.unset, each.field


def test_device_defaults_equal_the_engine_s() -> None:
    from llmfw.core.engine.generation import capacity

    tables = {
        "mem_fraction_static": capacity.DEFAULT_MEM_FRACTION,
        "max_running_requests": capacity.DEFAULT_MAX_RUNNING,
        "chunked_prefill_size": capacity.DEFAULT_CHUNK,
    }
    for field, table in tables.items():
        assert UNSET[field] == f"{table['cuda']} on a GPU, {table['cpu']} on a CPU"
    assert UNSET["cuda_graph_max_bs"] == str(capacity.DEFAULT_GRAPH_SIZE)


def test_choices_equal_the_engine_s() -> None:
    [each] = (each for each in declared(EngineConfig) if each.field == "kv_cache_dtype")
    assert choices_of(each.annotation) == ("auto", *KV_DTYPE_BYTES)


def test_a_wrong_value_names_its_option() -> None:
    with pytest.raises(ConfigError, match=r"^--response-ttl is 0; it must be a finite number, more than 0"):
        ServerConfig(served_model_name="m", response_ttl_days=0)


def test_each_option_has_a_heading() -> None:
    settings = [option for option in setting_options() if not option.setting.is_local]
    assert all(option.group for option in settings)
