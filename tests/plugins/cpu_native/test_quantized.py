"""Quantized weights in native code: products and whole models, next to torch's."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.base.request import SamplingParams
from llmfw.core.model.quantization.code_format import FORMATS, INT4, CodeFormat
from llmfw.core.model.quantization.modules import QuantizedEmbedding, QuantizedLinear, QuantizedWeight
from llmfw.core.model.quantization.quantize import quantize
from llmfw.core.model.trial.packed import run_in_one_row
from llmfw.core.testing.module_pass import assert_close
from llmfw.plugins.cpu_native import library
from llmfw.plugins.cpu_native.decoder import NativeDecoder
from llmfw.plugins.cpu_native.layers import NativePass
from llmfw.plugins.cpu_native.libraries import build, build_quantized
from llmfw.plugins.cpu_native.library import why_not
from llmfw.plugins.cpu_native.quantized_weights import PackedCodes
from llmfw.plugins.cpu_native.weights import Arena, NativeEmbedding, NativeLinear

from ...core.engine.generation.running import build_engine, random_prompts, run
from ...core.engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model
from ...core.model.quantization.schemes import chosen
from .test_layers import LENGTHS, TOLERANCES, make
from .test_products import FLAGS, dtypes_of, flags_of_this_cpu

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))

EACH = pytest.mark.parametrize("code_format", FORMATS.values(), ids=FORMATS)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
BOUNDS = {torch.float32: 1e-6, torch.bfloat16: 5e-3}
SHAPES = ((2, 1), (48, 80), (64, 32), (7, 33), (130, 200), (577, 65))


def quantized(
    shape: tuple[int, int], code_format: CodeFormat, dtype: torch.dtype, *, bias: bool = False
) -> QuantizedLinear:
    """Return a random quantized layer of so many inputs and outputs."""
    torch.manual_seed(shape[0] * shape[1])
    weight = QuantizedWeight.of(torch.randn(shape[1], shape[0]).to(dtype), code_format)
    added = nn.Parameter(torch.randn(shape[1]).to(dtype), requires_grad=False) if bias else None
    return QuantizedLinear(weight, added)


def native(layer: QuantizedLinear) -> NativeLinear:
    biases = None if layer.bias is None else [layer.bias]
    return NativeLinear(PackedCodes([layer.quantized], biases, Arena()))


def check_products(layer: QuantizedLinear, counts: range) -> None:
    packed = native(layer)
    numbers = layer.quantized.rows(slice(None), torch.float64)
    rows = torch.randn(max(counts), layer.in_features).to(layer.quantized.dtype)
    expected = rows.double() @ numbers.T + (0 if layer.bias is None else layer.bias.double())
    whole = packed(rows)
    assert (whole.double() - expected).abs().max() <= BOUNDS[rows.dtype] * expected.abs().max()
    for count in counts:
        assert torch.equal(packed(rows[:count]), whole[:count]), count


@EACH
@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_correct_for_any_row_count(
    shape: tuple[int, int], dtype: torch.dtype, code_format: CodeFormat
) -> None:
    """A row gives the same bits among any number of rows."""
    check_products(quantized(shape, code_format, dtype, bias=shape[0] % 2 == 0), range(1, 41))


@EACH
def test_many_rows_and_panels_are_blocked(code_format: CodeFormat) -> None:
    check_products(quantized((96, 70), code_format, torch.bfloat16), range(95, 301, 41))
    check_products(quantized((64, 2000), code_format, torch.bfloat16), range(1, 20, 3))


@EACH
@DTYPES
def test_many_inputs_are_split_between_groups(code_format: CodeFormat, dtype: torch.dtype) -> None:
    check_products(quantized((12_345, 33), code_format, dtype), range(1, 41))


@EACH
@DTYPES
def test_packed_weights_can_be_read(code_format: CodeFormat, dtype: torch.dtype) -> None:
    first, second = quantized((45, 40), code_format, dtype), quantized((45, 7), code_format, dtype)
    packed = PackedCodes([first.quantized, second.quantized], None, Arena())
    for i, layer in enumerate((first, second)):
        assert torch.equal(NativeLinear(packed, i).weight, layer.weight)
    embedding = NativeEmbedding(PackedCodes([first.quantized], None, Arena()))
    ids = torch.randint(40, (2, 21))
    assert torch.equal(embedding(ids), QuantizedEmbedding(first.quantized)(ids))


def test_nan_stays_in_its_row() -> None:
    packed = native(quantized((48, 40), INT4, torch.bfloat16))
    rows = torch.zeros(30, 48, dtype=torch.bfloat16)
    rows[1, 5] = float("nan")
    output = packed(rows)
    assert output[1].isnan().all()
    assert (output[[0, *range(2, 30)]] == 0).all()


@pytest.mark.long
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="builds for kinds of x86")
@pytest.mark.parametrize("cpu", FLAGS)
def test_code_for_other_cpus_is_correct(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if FLAGS[cpu][0] not in flags_of_this_cpu():
        pytest.skip(f"this CPU cannot run {cpu}")
    libraries = {}
    for dtype in dtypes_of(cpu):
        scalar = library.DTYPES[dtype]
        libraries[dtype] = library.open_library(build(scalar, FLAGS[cpu][1:]))
        library.use_quantized(libraries[dtype], build_quantized(scalar, FLAGS[cpu][1:]))
        libraries[dtype].llmfw_set_threads(2)
    for place in ("weights.load_library", "quantized_weights.load_quantized"):
        monkeypatch.setattr(f"llmfw.plugins.cpu_native.{place}", libraries.__getitem__)
    for code_format in FORMATS.values():
        for dtype in libraries:
            check_products(quantized((130, 200), code_format, dtype, bias=True), range(1, 41))
        layer = quantized((45, 40), code_format, torch.bfloat16)
        embedding = NativeEmbedding(PackedCodes([layer.quantized], None, Arena()))
        assert torch.equal(embedding(torch.arange(40)), layer.weight)


def logits(model: nn.Module, lengths: list[int]) -> torch.Tensor:
    size = model.config.vocab_size
    return run_in_one_row(model, [[(5 * i + 7 * n) % size for i in range(n)] for n in lengths])


@EACH
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("variant", ["qwen2", "qwen3", "tied", "biases everywhere", "uneven widths"])
def test_native_quantized_decoders_equal_torch(
    variant: str, dtype: torch.dtype, code_format: CodeFormat
) -> None:
    model = make(variant, dtype, merged=False)
    quantize(model, chosen(code_format.name))
    expected = [logits(model, lengths) for lengths in LENGTHS]
    num_layers = model.config.num_hidden_layers
    assert NativePass().apply(model) == 7 * num_layers + 2 + (variant == "tied")
    assert type(model.model) is NativeDecoder
    for lengths, before in zip(LENGTHS, expected, strict=True):
        assert_close(logits(model, lengths), before, TOLERANCES[dtype])
    alone = logits(model, [5])
    assert torch.equal(logits(model, [5, 1, 9, 30])[:5], alone)


@pytest.mark.parametrize("family", ["gemma 3", "phi 3", "gpt-neox", "olmo 2"])
def test_other_families_products_are_native(family: str) -> None:
    model = make(family, torch.bfloat16, merged=False)
    count = quantize(model, chosen("int8")).num_modules
    expected = logits(model, [5, 1, 30])
    has_tied = any(isinstance(module, QuantizedEmbedding) for module in model.modules())
    assert NativePass().apply(model) == count - has_tied
    assert not any(isinstance(module, QuantizedLinear) for module in model.modules())
    assert_close(logits(model, [5, 1, 30]), expected, TOLERANCES[torch.bfloat16])


def test_quantized_weights_are_stored_once() -> None:
    model = make("tied", torch.bfloat16, merged=False)
    quantize(model, chosen("int8"))
    kept = [weakref.ref(each) for each in (model.model.layers[0].mlp.down_proj, model.lm_head)]
    NativePass().apply(model)
    assert [each() for each in kept] == [None, None]


@pytest.mark.parametrize("scheme", FORMATS)
def test_quantized_tokens_agree_across_batches_and_implementations(scheme: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    prompts = random_prompts(6, VOCAB_SIZE)
    sampling = SamplingParams(temperature=0, max_tokens=12)

    def outputs(passes: str, **settings: Any) -> list[list[int]]:
        engine = build_engine(folder, quantization=scheme, module_passes=passes, **settings)
        assert engine.info.quantization == scheme
        together = run(engine, prompts, sampling, seed=1)
        assert [run(engine, [prompt], sampling)[0] for prompt in prompts] == together
        return together

    found = outputs("cpu-native", attention="cpu")
    assert outputs("none", attention="torch") == found
    engine = build_engine(folder)
    assert run(engine, prompts, sampling) != found, "some token of random weights is another one"
