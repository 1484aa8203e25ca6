"""Random mutations of a GPTQ checkpoint are refused in one line, or change nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from llmfw.core.base.errors import ConfigError

from .folders import Tensors, change, configure, logits
from .test_gptq import SETTINGS, make

NUM_MUTATIONS = 30
LEAVES = ("qweight", "qzeros", "scales", "g_idx")
SETTING_VALUES: dict[str, list[Any]] = {
    "bits": [2, 3, 8, "4", None, -4],
    "group_size": [-1, 0, 16, 31, 64, 128, "32", None],
    "sym": [False, 1, "true", None],
    "desc_act": [True, 0, "no", None],
    "checkpoint_format": ["gptq_v2", "marlin", "gptq", 2],
    "quant_method": ["awq", "GPTQ", "exl2", None],
}
OF_TENSOR: dict[str, Callable[[torch.Tensor, random.Random], torch.Tensor | None]] = {
    "delete": lambda x, r: None,
    "cut": lambda x, r: x[: r.randrange(len(x))],
    "extend": lambda x, r: torch.cat((x, x[:1])),
    "transpose": lambda x, r: x.mT if x.dim() == 2 else x[None],
    "flatten": lambda x, r: x.reshape(-1),
    "float": lambda x, r: x.to(torch.float64),
    "short": lambda x, r: x.to(torch.int16),
    "NaN": lambda x, r: x * torch.nan if x.is_floating_point() else x,
    "infinity": lambda x, r: x * torch.inf if x.is_floating_point() else x.reshape(1, *x.shape),
}


def mutation(seed: int) -> tuple[dict[str, Any], Callable[[Tensors], Tensors]]:
    """Return random changes: of the settings, or of a tensor."""
    chosen = random.Random(seed)
    if chosen.random() < 0.4:
        key = chosen.choice(sorted(SETTING_VALUES))
        return {key: chosen.choice(SETTING_VALUES[key])}, dict
    change = OF_TENSOR[chosen.choice(sorted(OF_TENSOR))]
    leaf = chosen.choice(LEAVES)

    def changed(tensors: Tensors) -> Tensors:
        name = chosen.choice(sorted(name for name in tensors if name.endswith(leaf)))
        new = change(tensors[name], chosen)
        return {
            each: x if each != name else new for each, x in tensors.items() if each != name or new is not None
        }

    return {}, changed


def test_mutations_are_refused_or_harmless(tmp_path: Path) -> None:
    """Of codes and zero points that are other numbers of the same kind, nobody can tell."""
    quantized, plain = make(tmp_path, {"desc_act": True})
    expected = logits(plain)
    stored = (quantized / "model.safetensors").read_bytes()
    reasons = []
    for seed in range(NUM_MUTATIONS):
        settings, of_tensors = mutation(seed)
        (quantized / "model.safetensors").write_bytes(stored)
        configure(quantized, SETTINGS | {"desc_act": True} | settings)
        change(quantized, of_tensors)
        try:
            assert torch.equal(logits(quantized), expected), (seed, settings)
        except ConfigError as error:
            reasons.append(str(error))
    assert [reason for reason in reasons if "\n" in reason] == []
    assert len(reasons) > NUM_MUTATIONS // 2
