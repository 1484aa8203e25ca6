"""Conformance tests of the `QuantizationScheme` interface."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional

from llmfw.core.interfaces.quantization_scheme import LinearLayer, QuantizationScheme
from llmfw.core.model.quantization.chosen_scheme import ChosenScheme
from llmfw.core.model.quantization.layer_memory import held_bytes
from llmfw.core.model.quantization.layer_trial import ROUNDING
from llmfw.core.model.quantization.quantize import planned_size, quantize
from llmfw.core.plugin.registry import Entry

from .module_pass_models import build_model, logits_of
from .resources import anonymous_bytes
from .tensors import TensorTests

SHAPES = ((64, 64), (1, 96), (33, 50), (130, 48), (48, 7), (256, 320))
"""Sizes of weights: [out_features, in_features]. Not all are multiples of anything."""
ROWS = (1, 2, 17, 300)
"""Numbers of rows of inputs."""
NUM_ROWS = 1100
"""Number of rows together: more than prompts have in a step by default."""
SCALES = (1.0, 0.01, 10.0, 3.0)
"""Sizes of the rows of an input, repeated."""
MANY = 60
"""Number of calls after which a module must still return the same."""
LARGE = (1024, 1024)
"""Size of a weight that must become smaller."""
TALL = (1500, 64)
"""Size of a weight of which each output is compared."""
OUTPUT_FACTOR = 3
"""How often the tolerance of all outputs together an output may differ by."""
NUM_LARGE, SPARE = 16, 24 * 2**20
"""Number of large layers that are quantized, and the memory in bytes that they may take beyond `num_bytes`."""


@dataclass(frozen=True)
class ExampleLayer:
    """A linear layer with random weights.

    Attributes:
        layer: its description.
        weight: weight, [out_features, in_features].
        bias: bias, [out_features], or None.
    """

    layer: LinearLayer
    weight: torch.Tensor
    bias: torch.Tensor | None

    def inputs(self, num_rows: int) -> torch.Tensor:
        """Return random inputs of different sizes, [num_rows, in_features]."""
        scales = torch.tensor([SCALES[i % len(SCALES)] for i in range(num_rows)], device=self.weight.device)
        numbers = random_numbers(num_rows, self.layer.in_features, seed=num_rows).to(self.weight.device)
        return (numbers * scales[:, None]).to(self.layer.dtype)

    def error(self, found: torch.Tensor, inputs: torch.Tensor) -> float:
        """Return the distance of outputs [rows, out_features] from exact ones, relative to the outputs' norm.

        This norm is the average norm of outputs for random inputs of the same sizes.
        """
        bias = None if self.bias is None else self.bias.double()
        exact = functional.linear(inputs.double(), self.weight.double(), bias)
        squares = inputs.double().square().sum(-1) * self.weight.double().square().sum()
        squares = squares / self.layer.in_features + (0.0 if bias is None else bias.square().sum())
        moved = (found.double() - exact).norm(dim=-1)
        return float((moved / squares.sqrt().clamp_min(1e-300)).square().mean().sqrt())


class QuantizationSchemeTests(TensorTests):
    """Conformance tests of a quantization scheme.

    Derive from this class and override the fixture `scheme`, and other fixtures if their defaults do not fit.
    Tests with a dtype that the scheme reports as unsupported are skipped with its reason, as are tests of
    layers that the scheme leaves as they are.
    """

    @pytest.fixture
    def scheme(self) -> QuantizationScheme:
        """Return the scheme under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture scheme")

    @pytest.fixture
    def supported(self, scheme: QuantizationScheme, device: str, dtype: torch.dtype) -> QuantizationScheme:
        """Return the scheme; skip the test if the scheme does not support the device or dtype."""
        reason = scheme.unsupported(device, dtype)
        assert reason is None or isinstance(reason, str)
        if reason is not None:
            pytest.skip(reason)
        return scheme

    @pytest.fixture(params=SHAPES, ids=str)
    def shape(self, request: pytest.FixtureRequest) -> tuple[int, int]:
        """Return the size of a weight, [out_features, in_features]."""
        shape: tuple[int, int] = request.param
        return shape

    @pytest.mark.parametrize("has_bias", [False, True])
    def test_outputs_are_within_the_tolerance(
        self,
        supported: QuantizationScheme,
        shape: tuple[int, int],
        has_bias: bool,
        device: str,
        dtype: torch.dtype,
    ) -> None:
        """Holds for any number of rows, with and without a batch dimension."""
        example = make_layer(shape, device, dtype, has_bias=has_bias)
        module = quantized(supported, example)
        for num_rows in ROWS:
            inputs = example.inputs(num_rows)
            found = run(module, inputs)
            assert found.shape == (num_rows, shape[0])
            assert (found.dtype, found.device) == (inputs.dtype, inputs.device)
            assert example.error(found, inputs) <= supported.tolerance + ROUNDING[dtype]
            batched = run(module, inputs[None])
            assert batched.shape == (1, num_rows, shape[0])
            assert example.error(batched[0], inputs) <= supported.tolerance + ROUNDING[dtype]

    def test_memory_is_what_num_bytes_says(
        self, supported: QuantizationScheme, shape: tuple[int, int], device: str, dtype: torch.dtype
    ) -> None:
        for has_bias in (False, True):
            example = make_layer(shape, device, dtype, has_bias=has_bias)
            size = size_of(supported, example.layer)
            assert size == size_of(supported, example.layer)
            bias_bytes = 0 if example.bias is None else example.bias.nbytes
            assert held_bytes(quantized(supported, example), example.bias) == size + bias_bytes

    def test_large_weights_become_smaller(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        layer = LinearLayer("model.layers.0.mlp.up_proj", *LARGE, dtype)
        assert size_of(supported, layer) < LARGE[0] * LARGE[1] * dtype.itemsize

    def test_each_output_is_near_its_own(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        """Checks each output separately, because a few wrong ones hardly change the norm of all outputs."""
        example = make_layer(TALL, device, dtype)
        inputs = example.inputs(64)
        found = run(quantized(supported, example), inputs).double()
        exact = inputs.double() @ example.weight.double().T
        wrong = (found - exact).norm(dim=0) / exact.norm(dim=0)
        assert float(wrong.max()) <= OUTPUT_FACTOR * (supported.tolerance + ROUNDING[dtype])

    def test_layers_hold_no_other_memory(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        """Memory outside tensors counts, too, such as a copy of the weights as an array."""
        if device != "cpu" or not anonymous_bytes():
            pytest.skip("the memory of the process does not tell")
        held, modules, size = anonymous_bytes(), [], 0
        for number in range(NUM_LARGE):
            example = make_layer(LARGE, device, dtype, seed=number)
            size += size_of(supported, example.layer)
            modules.append(quantized(supported, example))
            del example
        gc.collect()
        assert anonymous_bytes() - held <= size + SPARE, "modules hold more than `num_bytes` says"

    def test_a_row_does_not_depend_on_others(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        """Holds for any number of other rows, even if their values are larger."""
        example = make_layer((64, 96), device, dtype)
        module = quantized(supported, example)
        inputs = example.inputs(NUM_ROWS)
        together = run(module, inputs)
        for row in (0, 1, 2, NUM_ROWS - 1):
            alone = run(module, inputs[row : row + 1])[0]
            distance = float((together[row].double() - alone.double()).norm() / alone.double().norm())
            assert distance <= ROUNDING[dtype]

    def test_the_same_inputs_give_the_same_outputs(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        example = make_layer((33, 50), device, dtype)
        module = quantized(supported, example)
        inputs = example.inputs(3)
        first = run(module, inputs)
        for number in range(MANY):
            run(module, example.inputs(1 + number % 5))
            assert torch.equal(run(module, inputs), first)

    def test_a_module_does_not_change_its_inputs(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        example = make_layer((33, 50), device, dtype)
        inputs = example.inputs(5)
        before = inputs.clone()
        run(quantized(supported, example), inputs)
        assert torch.equal(inputs, before)

    def test_the_weight_is_neither_changed_nor_kept(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        """If a module kept the weight, quantization would increase the memory."""
        example = make_layer((64, 64), device, dtype, has_bias=True)
        assert example.bias is not None
        bias = example.bias.clone()
        # The array lives as long as any tensor that shares its memory.
        array = example.weight.cpu().view(torch.uint8).numpy().copy()
        alive = weakref.ref(array)
        weight = torch.from_numpy(array).view(dtype).to(device)
        del array
        module = quantized(supported, ExampleLayer(example.layer, weight, example.bias))
        assert torch.equal(weight, example.weight)
        assert torch.equal(bias, example.bias), "the bias is changed"
        del weight
        gc.collect()
        assert alive() is None, "the weight is kept"
        run(module, example.inputs(2))
        for name, each in module.named_modules():
            kept = [key for key, value in vars(each).items() if isinstance(value, torch.Tensor)]
            assert kept == [], f"tensors of {name or 'the module'} are not buffers"

    def test_layers_are_quantized_independently(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        first, second = (make_layer((48, 64), device, dtype, seed=seed) for seed in (1, 2))
        inputs = first.inputs(4)
        module = quantized(supported, first)
        before = run(module, inputs)
        for example in (second, make_layer((32, 40), device, dtype), second):
            quantized(supported, example)
        assert torch.equal(run(module, inputs), before)
        assert torch.equal(run(quantized(supported, first), inputs), before)

    @pytest.mark.parametrize("kind", ["zeros", "outliers", "tiny", "large", "constant"])
    def test_unusual_weights_are_quantized(
        self, supported: QuantizationScheme, kind: str, device: str, dtype: torch.dtype
    ) -> None:
        """Checkpoints have rows of zeros, and single weights that are much larger than others."""
        example = make_layer((48, 64), device, dtype)
        weight = example.weight.clone()
        if kind == "zeros":
            weight[5:9] = 0
            weight[20, 32:] = 0
        elif kind == "outliers":
            weight[:, 3] *= 100
        elif kind == "tiny":
            weight *= 1e-3
        elif kind == "large":
            weight *= 30
        else:
            weight[:] = 0.25
        unusual = ExampleLayer(example.layer, weight, example.bias)
        module, inputs = quantized(supported, unusual), example.inputs(8)
        found = run(module, inputs)
        assert bool(found.isfinite().all())
        error = unusual.error(found, inputs)
        assert error <= supported.tolerance + ROUNDING[dtype], f"weights of the kind {kind!r}"

    def test_embeddings_share_the_weight_of_the_head(
        self, supported: QuantizationScheme, device: str, dtype: torch.dtype
    ) -> None:
        if type(supported).embedding is QuantizationScheme.embedding:
            pytest.skip("the scheme leaves heads that share their weight with embeddings as they are")
        example = make_layer((96, 64), device, dtype, is_head=True)
        head = quantized(supported, example)
        embedding = supported.embedding(head)
        assert isinstance(embedding, nn.Module)
        held = {tensor.untyped_storage().data_ptr() for tensor in (*head.buffers(), *head.parameters())}
        own = {
            tensor.untyped_storage().data_ptr() for tensor in (*embedding.buffers(), *embedding.parameters())
        }
        assert own <= held
        ids = torch.tensor([[0, 95, 7], [7, 7, 50]], device=device)
        found = run(embedding, ids)
        assert found.shape == (2, 3, 64)
        assert found.dtype == dtype
        expected = example.weight[ids].double()
        distance = float((found.double() - expected).norm() / expected.norm())
        assert distance <= supported.tolerance + ROUNDING[dtype]

    @pytest.mark.parametrize("family", ["llama", "qwen2", "gemma3", "phi3"])
    def test_models_are_quantized_as_planned(
        self, supported: QuantizationScheme, family: str, device: str, dtype: torch.dtype
    ) -> None:
        """The plan gets the size of a model without its weights."""
        kind = type(supported)
        entry = Entry("quantization_scheme", kind.__name__, f"{kind.__module__}:{kind.__name__}", "", "", "")
        model = build_model(family, device, dtype)
        planned, _ = planned_size(
            build_model(family, device, dtype).to("meta"), ChosenScheme(entry, supported)
        )
        found = quantize(model, ChosenScheme(entry, supported))
        assert found.num_bytes == planned
        assert bool(logits_of(model, [5, 1, 40]).isfinite().all())


def make_layer(
    shape: tuple[int, int],
    device: str,
    dtype: torch.dtype,
    *,
    has_bias: bool = False,
    is_head: bool = False,
    seed: int = 1,
) -> ExampleLayer:
    """Return a linear layer with random weights.

    Args:
        shape: size of the weight, [out_features, in_features].
        seed: layers with different seeds differ.
    """
    weight = (0.2 * random_numbers(*shape, seed=seed)).to(device, dtype)
    bias = random_numbers(shape[0], seed=seed + 1).to(device, dtype) if has_bias else None
    name = "lm_head" if is_head else "model.layers.0.mlp.down_proj"
    return ExampleLayer(LinearLayer(name, *shape, dtype, is_head=is_head), weight, bias)


def random_numbers(*shape: int, seed: int) -> torch.Tensor:
    """Return normally distributed numbers in float32 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def size_of(scheme: QuantizationScheme, layer: LinearLayer) -> int:
    """Return the size of a layer's quantized weight in bytes; skip the test if the layer is left out."""
    size = scheme.num_bytes(layer)
    if size is None:
        pytest.skip(f"the scheme leaves layers of {layer.out_features} x {layer.in_features} as they are")
    assert type(size) is int
    assert size > 0
    return size


def quantized(scheme: QuantizationScheme, example: ExampleLayer) -> nn.Module:
    """Return the module of a layer; skip the test if the scheme leaves the layer out."""
    size_of(scheme, example.layer)
    with torch.inference_mode():
        module = scheme.quantize(example.layer, example.weight, example.bias)
    assert isinstance(module, nn.Module)
    return module.eval().requires_grad_(False)


def run(module: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return the outputs of a module."""
    with torch.inference_mode():
        found = module(inputs)
    assert isinstance(found, torch.Tensor)
    return found
