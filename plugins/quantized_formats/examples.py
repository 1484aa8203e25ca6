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


def awq_example(out_features: int, in_features: int, seed: int) -> QuantizedExample:
    """Return a layer of AWQ."""
    generator = torch.Generator().manual_seed(seed)
    groups = in_features // GROUP
    codes = torch.randint(0, 16, (in_features, out_features), generator=generator)
    zeros = torch.randint(0, 16, (groups, out_features), generator=generator)
    scales = torch.rand(groups, out_features, generator=generator).half()
    group = torch.arange(in_features) // GROUP
    weight = ((codes - zeros[group]).double() * scales.double()[group]).T.float().contiguous()
    settings = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "zero_point": True,
        "version": "gemm",
    }
    tensors = {
        "qweight": packed(_interleaved(codes)),
        "qzeros": packed(_interleaved(zeros)),
        "scales": scales,
    }
    return QuantizedExample(settings, tensors, weight)


def fp8_example(out_features: int, in_features: int, seed: int) -> QuantizedExample:
    """Return a layer in FP8, with a scale for each block of 48 x 80."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randn(out_features, in_features, generator=generator).to(torch.float8_e4m3fn)
    scales = torch.rand(-(-out_features // 48), -(-in_features // 80), generator=generator)
    of_rows, of_columns = torch.arange(out_features) // 48, torch.arange(in_features) // 80
    weight = (codes.double() * scales.double()[of_rows][:, of_columns]).float()
    settings = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "weight_block_size": [48, 80],
    }
    return QuantizedExample(settings, {"weight": codes, "weight_scale_inv": scales}, weight)


def compressed_example(out_features: int, in_features: int, seed: int) -> QuantizedExample:
    """Return a layer of compressed-tensors: 4 bits, packed, asymmetric, with act-order; inputs of 8 bits."""
    generator = torch.Generator().manual_seed(seed)
    groups = in_features // GROUP
    codes = torch.randint(0, 16, (out_features, in_features), generator=generator)
    zeros = torch.randint(0, 16, (out_features, groups), generator=generator)
    scales = torch.rand(out_features, groups, generator=generator).bfloat16()
    group = (torch.arange(in_features) // GROUP)[torch.randperm(in_features, generator=generator)]
    weight = ((codes - zeros[:, group]).double() * scales.double()[:, group]).float()
    weights = {
        "num_bits": 4,
        "type": "int",
        "symmetric": False,
        "strategy": "group",
        "group_size": GROUP,
        "actorder": "group",
    }
    inputs = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}
    settings = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
        },
    }
    tensors = {
        "weight_packed": packed(codes),
        "weight_shape": torch.tensor([out_features, in_features]),
        "weight_scale": scales,
        "weight_zero_point": packed(zeros.T).T.contiguous(),
        "weight_g_idx": group.int(),
    }
    return QuantizedExample(settings, tensors, weight)


def _interleaved(codes: torch.Tensor) -> torch.Tensor:
    """Return codes [rows, out] in the order of AWQ's words."""
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    return codes.view(len(codes), -1, 8)[:, :, order].reshape(codes.shape)


def packed(codes: torch.Tensor) -> torch.Tensor:
    """Pack codes of 4 bits, [rows, columns], into int32, [rows, columns / 8], lowest bits first."""
    words = codes.long().reshape(len(codes), -1, 8) << torch.arange(0, 32, 4)
    return words.sum(-1).to(torch.int32)
