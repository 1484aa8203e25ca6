"""Random quantized layers, with which `llmfw check quantized_format NAME` tests the bundled formats."""

from __future__ import annotations

import torch

from llmfw.core.testing import QuantizedExample

GROUP = 32


def gptq_example(out_features: int, in_features: int, seed: int) -> QuantizedExample:
    """Return a layer of GPTQ: 4 bits, asymmetric, with act-order."""
    generator = torch.Generator().manual_seed(seed)
    groups = in_features // GROUP
    codes = torch.randint(0, 16, (in_features, out_features), generator=generator)
    zeros = torch.randint(1, 16, (groups, out_features), generator=generator)
    scales = torch.rand(groups, out_features, generator=generator).half()
    group = (torch.arange(in_features) // GROUP)[torch.randperm(in_features, generator=generator)]
    weight = ((codes - zeros[group]).double() * scales.double()[group]).T.float().contiguous()
    settings = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "sym": False,
        "desc_act": True,
        "checkpoint_format": "gptq",
    }
    tensors = {
        "qweight": packed(codes.T).T.contiguous(),
        "qzeros": packed(zeros - 1),
        "scales": scales,
        "g_idx": group.int(),
    }
    return QuantizedExample(settings, tensors, weight)


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Pack codes of 4 bits, [rows, columns], into int32, [rows, columns / 8], the first one in the lowest bits."""
    words = codes.long().reshape(len(codes), -1, 8) << torch.arange(0, 32, 4)
    return words.sum(-1).to(torch.int32)
