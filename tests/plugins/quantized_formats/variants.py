"""Each variant that the bundled formats read, as an example for their conformance class."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from llmfw.core.testing import QuantizedExample

from . import test_awq, test_compressed_tensors, test_fp8, test_gptq, test_nvfp4
from .folders import Written

Make = Callable[[int, int, int], QuantizedExample]
Write = Callable[[np.random.Generator, int, int], Written]


def variants() -> dict[str, Make]:
    """Return functions that make examples, by the format's name, a colon, and the variant."""
    found = {
        f"{settings['quant_method']}: {name}": _example(settings, write)
        for name, settings, write in _written()
    }
    for kind in ("int", "float"):
        for strategy in ("token", "tensor"):
            found[f"compressed-tensors: {kind} inputs by {strategy}"] = _with_rounded_inputs(kind, strategy)
    return found


def _written() -> Iterator[tuple[str, Mapping[str, Any], Write]]:
    for name, given in test_compressed_tensors.CASES.items():
        yield name, given, lambda *sizes, given=given: test_compressed_tensors.write(*sizes, given)
    dense = test_compressed_tensors.PACKED | {"sparsity_config": {"format": "dense"}}
    yield "dense", dense, lambda *sizes: test_compressed_tensors.write(*sizes, dense)
    yield "nvfp4", test_nvfp4.settings(), test_nvfp4.write
    for bits, size, is_symmetric in itertools.product((4, 8), (-1, 32), (True, False)):
        changed = {"bits": bits, "group_size": size, "sym": is_symmetric, "desc_act": size == 32}
        settings = test_gptq.SETTINGS | changed
        yield f"{bits} {size} {is_symmetric}", settings, lambda *sizes, s=settings: test_gptq.write(*sizes, s)
    second = test_gptq.SETTINGS | {"checkpoint_format": "gptq_v2", "sym": False}
    yield "v2", second, lambda *sizes: test_gptq.write(*sizes, second)
    for block in ([48, 40], None):
        settings = test_fp8.SETTINGS | {"weight_block_size": block}
        yield f"block {block}", settings, lambda *sizes, block=block: test_fp8.write(*sizes, block)
    for size in (-1, 16):
        settings = test_awq.SETTINGS | {"group_size": size}
        yield f"group {size}", settings, lambda *sizes, size=size: test_awq.write(*sizes, size)


def _example(settings: Mapping[str, Any], write: Write) -> Make:
    def make(out_features: int, in_features: int, seed: int) -> QuantizedExample:
        tensors, weight = write(np.random.default_rng(seed), out_features, in_features)
        return QuantizedExample(settings, tensors, torch.from_numpy(weight).float())

    return make


def _with_rounded_inputs(kind: str, strategy: str) -> Make:
    """Return examples of layers whose inputs are rounded to 8 bits, with a scale for each token or for all."""
    form, scale = "int-quantized" if kind == "int" else "float-quantized", torch.tensor([0.02])
    given = test_compressed_tensors.settings(
        form,
        test_compressed_tensors.weights(8, kind, "channel"),
        input_activations=test_compressed_tensors.activations(kind, strategy),
    )
    make = _example(given, lambda *sizes: test_compressed_tensors.write(*sizes, given))

    def rounded(rows: torch.Tensor) -> torch.Tensor:
        half, least, most = (127.5, -128, 127) if kind == "int" else (448.0, -448, 448)
        step = rows.abs().amax(-1, keepdim=True) / half if strategy == "token" else scale
        codes = (rows / torch.where(step == 0, 1.0, step)).clamp(least, most)
        return step * (codes.round() if kind == "int" else codes.to(torch.float8_e4m3fn).float())

    def example(out_features: int, in_features: int, seed: int) -> QuantizedExample:
        found = make(out_features, in_features, seed)
        stored = {} if strategy == "token" else {"input_scale": scale.clone()}
        return replace(found, tensors={**found.tensors, **stored}, rounded=rounded)

    return example
