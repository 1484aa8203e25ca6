"""Damaged and foreign GGUF files are refused in one line."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.integrations.gguf import gguf_tokenizer_mapping

from llmfw.core import ModelError

pytest.importorskip("gguf")

from llmfw.plugins.weights_gguf.experts import expert_config, expert_tensors
from llmfw.plugins.weights_gguf.header import Header, TensorEntry, read_header
from llmfw.plugins.weights_gguf.model_numbers import check_numbers
from llmfw.plugins.weights_gguf.served_files import checked_header
from llmfw.plugins.weights_gguf.tokenizer import write_tokenizer

from ...doubles.gguf_file import tiny_model, write_gguf

HUGE = struct.pack("<Q", 2**60)
COUNTS = {
    "tensors": (8, "claims .* tensors"),
    "entries": (16, "claims .* metadata entries"),
    "key": (24, "a text claims"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("gguf") / "m.gguf"
    write_gguf(file, tiny_model("llama", num_hidden_layers=1), "Q8_0")
    return file.read_bytes()


def written(folder: Path, content: bytes, name: str = "m.gguf") -> Path:
    file = folder / name
    file.write_bytes(content)
    return file


@given(share=st.floats(0, 1, exclude_max=True))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_shorter_file_is_refused(tmp_path: Path, whole: bytes, share: float) -> None:
    file = written(tmp_path, whole[: int(len(whole) * share)])
    with pytest.raises(ModelError, match="download it again"):
        read_header(file)


@pytest.mark.parametrize("what", COUNTS)
def test_lying_counts_are_refused(tmp_path: Path, whole: bytes, what: str) -> None:
    at, expected = COUNTS[what]
    file = written(tmp_path, whole[:at] + HUGE + whole[at + 8 :])
    with pytest.raises(ModelError, match=expected):
        read_header(file)


@given(at=st.integers(0, 6000), byte=st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_is_read_or_refused(tmp_path: Path, whole: bytes, at: int, byte: int) -> None:
    file = written(tmp_path, whole[:at] + bytes([byte]) + whole[at + 1 :])
    with contextlib.suppress(ModelError):
        checked_header(file)


@pytest.mark.parametrize(
    ("name", "metadata", "expected"),
    [
        ("mmproj-m.gguf", {}, "reads images"),
        ("m.gguf", {"split__count": 3}, "one of 3 parts"),
        ("m.gguf", {"general__type": "adapter"}, "holds a adapter"),
        ("m.gguf", {"llama__expert_count": "8"}, "mixture of experts of llama"),
        ("m.gguf", {"llama__expert_feed_forward_length": 8}, "expert_feed_forward_length 8"),
        ("m.gguf", {"llama__expert_weights_scale": 2.5}, "expert_weights_scale 2.5"),
        ("m.gguf", {"llama__expert_gating_func": 2}, "expert_gating_func 2"),
        ("m.gguf", {"llama__rope__scaling__type": "yarn"}, "rope.scaling.type 'yarn'"),
        # Without a type, llama.cpp scales linearly.
        ("m.gguf", {"llama__rope__scaling__factor": 4.0}, "rope.scaling.factor 4.0"),
        ("m.gguf", {"llama__rope__scale_linear": 4.0}, "rope.scale_linear 4.0"),
        ("m.gguf", {"llama__attention__causal": False}, "attention.causal 0"),
        ("m.gguf", {"llama__attention__unheard_of": 3}, "attention.unheard_of 3"),
        ("m.gguf", {"llama__attention__scale": 3.0}, "attention.scale 3.0"),
        ("m.gguf", {"llama__logit_scale": 0.5}, "logit_scale 0.5"),
        ("m.gguf", {"llama__final_logit_softcapping": 30.0}, "softcapping 30.0"),
    ],
)
def test_other_files_are_refused_by_name(
    tmp_path: Path, name: str, metadata: dict[str, object], expected: str
) -> None:
    file = tmp_path / name
    write_gguf(file, tiny_model("llama", num_hidden_layers=1), **metadata)
    with pytest.raises(ModelError, match=expected):
        checked_header(file)


@pytest.mark.parametrize(
    "metadata",
    [
        {"llama__rope__scaling__type": "none", "llama__rope__scaling__factor": 4.0},
        {"llama__rope__scaling__type": "linear", "llama__rope__scaling__factor": 1.0},
        {
            "llama__attention__causal": True,
            "llama__unheard_of": 0,
            "llama__tensor_data_layout": "Meta AI original pth",
        },
    ],
)
def test_numbers_without_effect_are_accepted(tmp_path: Path, metadata: dict[str, object]) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model("llama", num_hidden_layers=1), **metadata)
    checked_header(tmp_path / "m.gguf")


def test_mixtures_of_other_architectures_are_refused(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model("qwen2", num_hidden_layers=1), qwen2__expert_count=8)
    with pytest.raises(ModelError, match=r"experts of qwen2; those of llama, qwen3moe are read"):
        checked_header(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"expert_used_count": 9}, "9 as expert_used_count and 4 experts"),
        ({}, "None as expert_used_count"),
        ({"expert_used_count": 2}, "None as expert_feed_forward_length"),
        ({"expert_used_count": 2, "expert_feed_forward_length": 0}, "0 as expert_feed_forward_length"),
    ],
)
def test_contradictory_numbers_of_experts_are_refused(metadata: dict[str, int], expected: str) -> None:
    numbers = {f"qwen3moe.{key}": value for key, value in ({"expert_count": 4} | metadata).items()}
    with pytest.raises(ModelError, match=expected):
        expert_config(Path("m.gguf"), "qwen3moe", Header(numbers, {}))


@pytest.mark.parametrize(
    ("shape", "model_type", "count"),
    [((3, 8, 8), "mixtral", 4), ((4, 64), "qwen3_moe", 4), ((4, 8, 8), "qwen2", 0)],
)
def test_tensors_of_other_experts_are_refused(shape: tuple[int, ...], model_type: str, count: int) -> None:
    entry = TensorEntry("blk.3.ffn_up_exps.weight", shape, 0, 0, 4096, Path("m.gguf"))
    with pytest.raises(ModelError, match=rf"blk.3.ffn_up_exps.weight of .* and {count} experts"):
        expert_tensors(Path("m.gguf"), entry, model_type, count)


def test_old_transformers_is_refused_by_version(
    tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(gguf_tokenizer_mapping, "GGUF_PRE_TOKENIZER_SPLITS", raising=False)
    file = written(tmp_path, whole)
    with pytest.raises(
        ModelError, match=r"transformers \d.* install transformers>=5\.18 or take the safetensors"
    ):
        write_tokenizer(file, tmp_path, read_header(file))


def test_numbers_for_each_layer_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"attention.head_count_kv \[2, 4\]"):
        check_numbers(tmp_path, "llama", {"llama.attention.head_count_kv": [2, 4]})


@pytest.mark.parametrize(
    ("model_type", "kind", "expected"), [("stablelm", "F16", "'stablelm'"), ("llama", "TQ1_0", "TQ1_0")]
)
def test_unknown_formats_list_the_known(
    tmp_path: Path, whole: bytes, model_type: str, kind: str, expected: str
) -> None:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(tmp_path / "m.gguf", model_type)
    form = GGMLQuantizationType[kind]
    data = np.zeros((1, 54), np.uint8) if kind == "TQ1_0" else np.zeros((1, 4), np.float16)
    writer.add_tensor("token_embd.weight", data, raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match=f"{expected}.* are (served|read)"):
        checked_header(tmp_path / "m.gguf")
