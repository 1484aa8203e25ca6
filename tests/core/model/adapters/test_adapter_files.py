"""Adapters that PEFT has saved are read exactly, and those that cannot be served are refused by name."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from llmfw.core.base.errors import ModelError
from llmfw.core.model.adapters.adapter_files import AdapterWeights, BaseLinears, read_adapter

LAYERS = tuple(f"model.layers.{i}.self_attn.{name}" for i in range(3) for name in ("q_proj", "v_proj"))
BASE = BaseLinears(
    sizes=dict.fromkeys(LAYERS, (6, 4)),
    refused={"lm_head": "adapters of the output layer are not served"},
    heads={"lm_head"},
    modules={*LAYERS, "model.embed_tokens", "lm_head"},
)
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "r": 2,
    "lora_alpha": 6,
    "target_modules": ["q_proj", "v_proj"],
    "bias": "none",
    "init_lora_weights": True,
    "qalora_group_size": 16,
}


def save(folder: Path, layers: tuple[str, ...] = LAYERS, rank: int = 2, **changes: Any) -> Path:
    """Write an adapter of these layers, and return its folder."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes))
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for name in layers:
        for letter, shape in (("A", (rank, 6)), ("B", (4, rank))):
            tensors[f"base_model.model.{name}.lora_{letter}.weight"] = torch.randn(shape, generator=generator)
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replace, add or remove (None) tensors of a saved adapter."""
    path = folder / "adapter_model.safetensors"
    found = load_file(path) | tensors
    save_file({name: tensor for name, tensor in found.items() if tensor is not None}, path)


def read(folder: Path, dtype: torch.dtype = torch.float32, max_rank: int = 8) -> AdapterWeights:
    return read_adapter(str(folder), BASE, dtype, max_rank)


@pytest.mark.parametrize(("changes", "scale"), [({}, 3.0), ({"use_rslora": True}, 6 / math.sqrt(2))])
def test_reads_matrices_with_their_scale(tmp_path: Path, changes: dict[str, Any], scale: float) -> None:
    weights = read(save(tmp_path, **changes))
    stored = load_file(tmp_path / "adapter_model.safetensors")
    assert weights.rank == 2
    assert weights.layers.keys() == set(LAYERS)
    for name, layer in weights.layers.items():
        assert torch.equal(layer.down, stored[f"base_model.model.{name}.lora_A.weight"])
        up = stored[f"base_model.model.{name}.lora_B.weight"].T * scale
        assert torch.equal(layer.up, up)


def test_ranks_and_alphas_may_differ_by_module(tmp_path: Path) -> None:
    save(tmp_path, rank_pattern={r"layers\.1\..*": 4}, alpha_pattern={"v_proj": 10})
    for name in LAYERS[2:4]:
        change(
            tmp_path,
            **{
                f"base_model.model.{name}.lora_A.weight": torch.ones(4, 6),
                f"base_model.model.{name}.lora_B.weight": torch.ones(4, 4),
            },
        )
    layers = read(tmp_path).layers
    assert [layers[name].rank for name in LAYERS] == [2, 2, 4, 4, 2, 2]
    assert layers[LAYERS[2]].up[0, 0] == 6 / 4
    assert layers[LAYERS[3]].up[0, 0] == 10 / 4


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({"target_modules": "all-linear"}, LAYERS),
        ({"target_modules": r".*\.1\.self_attn\.(q|v)_proj"}, LAYERS[2:4]),
        ({"layers_to_transform": [0, 2]}, LAYERS[:2] + LAYERS[4:]),
        ({"layers_to_transform": 1, "layers_pattern": "layers"}, LAYERS[2:4]),
        ({"exclude_modules": ["v_proj"]}, LAYERS[::2]),
        ({"target_modules": list(LAYERS[1:3])}, LAYERS[1:3]),
    ],
)
def test_chooses_modules_as_peft_does(
    tmp_path: Path, changes: dict[str, Any], layers: tuple[str, ...]
) -> None:
    assert read(save(tmp_path, layers, **changes)).layers.keys() == set(layers)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; it must be LORA"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS'"),
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "whole modules of its own"),
        ({"trainable_token_indices": [1]}, "token embeddings of its own"),
        ({"target_parameters": ["experts.gate_up_proj"]}, "such as experts"),
        ({"bias": "all"}, "its bias is 'all'"),
        ({"lora_bias": True}, "have a bias"),
        (
            {"init_lora_weights": "pissa_niter_4"},
            "'pissa_niter_4', with which the base's weights were changed",
        ),
        ({"use_new_thing": True}, "field 'use_new_thing' is True, which llmfw does not know"),
        ({"r": 0}, r"Expected `int` >= 1 - at `\$.r`"),
        ({"r": 10**20}, r"Expected `int` <= 65536|at `\$.r`"),
        ({"rank_pattern": {"x": 10**9}}, r"Expected `int` <= 65536"),
        ({"r": 9}, r"has rank 9; the limit is 8: raise --max-adapter-rank"),
        ({"r": 4}, r"lora_A.weight is \[2, 6\]; .* rank 4 it must be \[4, 6\]"),
        ({"target_modules": ["q_proj"]}, "tensors of model.layers.0.self_attn.v_proj, .* do not name"),
        ({"target_modules": ["k_proj"]}, "name no linear layer of this base"),
        ({"target_modules": ["q_proj", "v_proj", "lm_head"]}, "lm_head: adapters of the output layer"),
        ({"target_modules": "("}, "not a regular expression"),
        ({"rank_pattern": {"(": 1}}, "not a regular expression"),
        ({"target_modules": "(.|..|...)*0"}, "take more than 1 s to match"),
    ],
)
def test_configs_that_are_not_served_are_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        read(save(tmp_path, **changes))
    assert "\n" not in str(caught.value)


FIRST = f"base_model.model.{LAYERS[0]}.lora_"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({f"{FIRST}A.weight": None}, "lacks tensors of model.layers.0.self_attn.q_proj"),
        ({f"{FIRST}A.weight": torch.ones(2, 7)}, r"is \[2, 7\]; for this base"),
        ({f"{FIRST}B.weight": torch.tensor([[math.nan, 1]] * 4)}, "B.weight holds NaN or infinity"),
        ({f"{FIRST}B.weight": torch.tensor([[1e30, 1]] * 4)}, "overflow in float16"),
        ({f"{FIRST}A.weight": torch.ones(2, 6, dtype=torch.int64)}, "torch.int64; it must have a floating"),
        ({f"{FIRST}B.bias": torch.ones(4)}, "it has biases"),
        ({f"{FIRST}magnitude_vector": torch.ones(4)}, "DoRA"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": torch.ones(2, 6)}, "adapts embeddings"),
        (
            {"base_model.model.model.embed_tokens.lora_A.weight": torch.ones(2, 6)},
            "embed_tokens, which is not a linear",
        ),
        (
            {"base_model.model.model.layers.9.x.lora_A.weight": torch.ones(2, 6)},
            "layers.9.x, which this base lacks",
        ),
        ({"other": torch.ones(1)}, "tensor other cannot be used"),
        ({"a\nb\x1b[2J": torch.ones(1)}, r"tensor 'a\\nb\\x1b\[2J' cannot be used"),
        (
            {"base_model.model.model.\x1b[2J.lora_A.weight": torch.ones(2, 6)},
            r"it adapts 'model.\\x1b\[2J', which this base lacks",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, tensors: dict[str, torch.Tensor | None], message: str
) -> None:
    change(save(tmp_path), **tensors)
    with pytest.raises(ModelError, match=message) as caught:
        read(tmp_path, torch.float16)
    assert "\n" not in str(caught.value)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no adapter_config\.json; give a folder that PEFT has saved"):
        read(tmp_path)
    save(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"adapter_config\.json"):
        read(tmp_path)
    save(tmp_path)
    weights = tmp_path / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ModelError, match=r"damaged adapter_model\.safetensors"):
        read(tmp_path)
    weights.unlink()
    with pytest.raises(ModelError, match=r"has no adapter_model\.safetensors"):
        read(tmp_path)


def test_digests_tell_versions_apart(tmp_path: Path) -> None:
    first = read(save(tmp_path)).digest
    assert read(save(tmp_path)).digest == first
    change(tmp_path, **{f"{FIRST}A.weight": torch.ones(2, 6)})
    assert read(tmp_path).digest != first


class Acting(dict[str, tuple[int, int]]):
    """Sizes of a base that do something when they are first read: after the adapter's file was opened."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__(BASE.sizes)
        self._acts = [act]

    def __getitem__(self, name: str) -> tuple[int, int]:
        while self._acts:
            self._acts.pop()()
        return super().__getitem__(name)


def read_while(folder: Path, act: Callable[[], object]) -> AdapterWeights:
    """Read an adapter; call a function once the header of its weights has been read."""
    base = BaseLinears(Acting(act), BASE.refused, BASE.heads, BASE.modules)
    return read_adapter(str(folder), base, torch.float32, 8)


def test_digests_belong_to_the_weights_read(tmp_path: Path) -> None:
    """Cached prefixes of two versions with one digest would be mixed."""
    first, second = tmp_path / "first", tmp_path / "second"
    known = {}
    for folder in (save(first), save(second)):
        if folder is second:
            change(folder, **{f"{FIRST}A.weight": torch.ones(2, 6)})
        weights = read(folder)
        known[weights.digest] = weights.layers[LAYERS[0]].down
    assert len(known) == 2
    new = (second / "adapter_model.safetensors").read_bytes()

    def replace() -> None:
        (first / "new").write_bytes(new)
        (first / "new").replace(first / "adapter_model.safetensors")

    found = read_while(first, replace)
    assert torch.equal(found.layers[LAYERS[0]].down, known[found.digest])


def test_files_that_change_while_read_are_refused(tmp_path: Path) -> None:
    weights, config = tmp_path / "adapter_model.safetensors", tmp_path / "adapter_config.json"
    save(tmp_path)
    with pytest.raises(ModelError, match="damaged adapter_model"):  # a mapped file would end the process
        read_while(tmp_path, lambda: os.truncate(weights, 300))
    save(tmp_path)
    with pytest.raises(ModelError, match="changed while they were read"):
        read_while(tmp_path, lambda: config.write_text(json.dumps(CONFIG | {"lora_alpha": 7})))
    save(tmp_path)
    with pytest.raises(ModelError, match="changed while they were read"):
        read_while(tmp_path, lambda: save_file({"other": torch.ones(1)}, weights))


def test_the_time_of_all_patterns_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many patterns that are each fast enough could keep all other loads waiting for hours."""
    slow = {f"(.|..)*{number}x": 1 for number in range(100)}
    timeouts = []

    def match(pattern: str, name: str, timeout: float) -> None:
        timeouts.append(timeout)
        time.sleep(min(timeout, 0.02))
        if timeout < 0.02:
            raise TimeoutError

    monkeypatch.setattr("llmfw.core.model.adapters.module_patterns.regex.match", match)
    with pytest.raises(ModelError, match="take more than 1 s to match"):
        read(save(tmp_path, rank_pattern=slow))
    assert len(timeouts) <= 51


def test_large_configs_are_refused(tmp_path: Path) -> None:
    save(tmp_path, target_modules=["x" * 2**20])
    with pytest.raises(ModelError, match="more than 1048576 bytes"):
        read(tmp_path)
