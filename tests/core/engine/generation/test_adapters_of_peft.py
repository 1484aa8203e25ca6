"""An engine says token for token what PEFT's own model says in float32, with adapters that PEFT has made and saved."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from llmfw.core.base.request import Request

from ....doubles.tiny_adapters import continued
from ....length import also_each
from .running import GREEDY, build_engine, generate, random_prompts
from .tiny_models import SERVABLE, VOCAB_SIZE, save_random_model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    peft = pytest.importorskip("peft")

NUM_REQUESTS = 32
KINDS: tuple[dict[str, Any], ...] = (
    {"r": 4, "target_modules": "all-linear"},
    {"r": 64, "target_modules": ["q_proj", "v_proj"], "use_rslora": True},
    {"r": 16, "target_modules": r".*\.(k_proj|o_proj|down_proj)", "lora_alpha": 24},
    {"r": 8, "target_modules": ["up_proj", "o_proj"], "rank_pattern": {"o_proj": 12}, "alpha_pattern": {"up_proj": 4}},
    {"r": 8, "target_modules": ["gate_proj", "q_proj"], "layers_to_transform": [0, 2]},
)  # fmt: skip


def save_peft_adapter(folder: Path, model: Path, seed: int) -> Path:
    """Let PEFT make an adapter with random values, and save it."""
    torch.manual_seed(seed)
    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    kind = {"lora_alpha": 32} | KINDS[seed % len(KINDS)]
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **kind)
    adapted = peft.get_peft_model(base, config)
    for name, parameter in adapted.named_parameters():
        if ".lora_" in name:
            parameter.data *= 0.5
    adapted.save_pretrained(str(folder))
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "num_adapters"),
    [
        ("llama", 4),
        *also_each(
            *(("llama", 1), ("llama", 16), ("qwen2", 4), ("qwen2", 16), ("qwen3", 4), ("qwen3", 16)),
            *(("gemma 2 (soft cap)", 1), ("gemma 2 (soft cap)", 4), ("gemma 2 (soft cap)", 16)),
        ),
    ],
)
def test_equals_peft_token_for_token(family: str, num_adapters: int, tmp_path: Path) -> None:
    model = save_random_model(tmp_path / "model", *SERVABLE[family])
    adapters = [save_peft_adapter(tmp_path / f"a{i}", model, i) for i in range(num_adapters)]
    named = tuple(f"a{i}={path}" for i, path in enumerate(adapters))
    engine = build_engine(model, adapters=named, chunked_prefill_size=32)
    prompts = random_prompts(NUM_REQUESTS, VOCAB_SIZE, seed=num_adapters)
    names = [f"a{i % num_adapters}" if i % 8 != 7 else "" for i in range(NUM_REQUESTS)]
    requests = [
        Request(id=str(i), prompt=prompt, sampling=GREEDY, eos_token_ids=(1,), adapter=names[i])
        for i, prompt in enumerate(prompts)
    ]
    found = [outcome.token_ids for outcome in generate(engine, requests, seed=3)]
    for name in sorted(set(names)):
        theirs = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        if name:
            theirs = peft.PeftModel.from_pretrained(theirs, str(adapters[int(name[1:])])).eval()
        own = [i for i in range(NUM_REQUESTS) if names[i] == name]
        assert [found[i] for i in own] == continued(theirs, [prompts[i] for i in own], 24), name
