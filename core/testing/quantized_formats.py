"""Conformance tests of the `QuantizedFormat` interface: layers have the weights that their tensors encode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from llmfw.core.base.errors import ModelError
from llmfw.core.interfaces.quantized_format import QuantizedFormat, StoredLayer
from llmfw.core.interfaces.weight_loader import StoredTensor
from llmfw.core.model.quantized_formats.chosen_format import ChosenFormat
from llmfw.core.model.weights.isolated_loader import LoaderGuard
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.registry import Entry

from .declared import declared

SHAPES = ((64, 128), (128, 64), (256, 384), (64, 128))
"""Sizes of weights: [out_features, in_features]. Two layers have the same size."""
NAMES = tuple(f"model.layers.{i}.mlp.down_proj" for i in range(len(SHAPES)))
PLAIN = {
    "model.norm.weight": torch.ones(64),
    "model.layers.0.mlp.down_proj.bias": torch.ones(64),
    "model.layers.0.mlp.gate.weight": torch.ones(8, 64),
    "model.embed_tokens.weight": torch.ones(32, 64),
}
"""Tensors that are not quantized."""
STRANGE = "no value that a format has"


@dataclass(frozen=True)
class QuantizedExample:
    """A quantized linear layer, for tests.

    Attributes:
        settings: the `quantization_config`; the same for all sizes and seeds.
        tensors: stored tensors, by the last part of their name, such as "scales".
        weight: the weight that the tensors encode, [out_features, in_features], in float32.
        rounded: function that rounds inputs, [R, in_features] in float32, as the layer's module has to; None:
            unknown.
    """

    settings: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]
    weight: torch.Tensor
    rounded: Callable[[torch.Tensor], torch.Tensor] | None = None


Make = Callable[[int, int, int], QuantizedExample]


class QuantizedFormatTests:
    """Conformance tests of a quantized format.

    Derive from this class and override the fixtures `quantized_format` and `example`. A format may also
    declare `conformance = {"example": function}`.
    """

    @pytest.fixture
    def quantized_format(self) -> type[QuantizedFormat]:
        """Return the class under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture quantized_format")

    @pytest.fixture
    def example(self, quantized_format: type[QuantizedFormat]) -> Make:
        """Return a function of the numbers of outputs and inputs (multiples of 64) and a seed."""
        found: Make | None = declared(quantized_format, "example", None)
        if found is None:
            raise NotImplementedError(
                f"{type(self).__name__} has to override the fixture example, or {quantized_format.__name__} has to declare "
                'conformance = {"example": …}'
            )
        return found

    @pytest.fixture
    def refused(self, quantized_format: type[QuantizedFormat]) -> Sequence[Mapping[str, Any]]:
        """Return settings that the format must refuse, each in addition to those of the example."""
        found: Sequence[Mapping[str, Any]] = declared(quantized_format, "refused", ())
        return found

    def test_weights_are_what_tensors_stand_for(
        self, quantized_format: type[QuantizedFormat], example: Make
    ) -> None:
        """Holds for any order of the layers, and if a layer is read twice."""
        examples, stored = checkpoint(example)
        chosen = chosen_format(quantized_format, examples[NAMES[0]].settings)
        layers = chosen.layers(formats(stored))
        for name in (*NAMES, *reversed(NAMES)):
            assert f"{name}.weight" in layers, f"layers() lacks {name}"
            found = chosen.weight(layers[f"{name}.weight"], stored.__getitem__)
            torch.testing.assert_close(found, examples[name].weight, rtol=2e-7, atol=0)

    def test_weights_share_no_memory(self, quantized_format: type[QuantizedFormat], example: Make) -> None:
        """A weight keeps its numbers when weights of other layers are read, even of the same size."""
        examples, stored = checkpoint(example)
        chosen = chosen_format(quantized_format, examples[NAMES[0]].settings)
        layers = chosen.layers(formats(stored))
        found = {name: chosen.weight(layers[f"{name}.weight"], stored.__getitem__) for name in NAMES}
        for name, weight in found.items():
            torch.testing.assert_close(weight, examples[name].weight, rtol=2e-7, atol=0)

    def test_other_tensors_are_left_alone(
        self, quantized_format: type[QuantizedFormat], example: Make
    ) -> None:
        examples, stored = checkpoint(example)
        layers = chosen_format(quantized_format, examples[NAMES[0]].settings).layers(formats(stored))
        taken = {name for layer in layers.values() for name in layer.tensors.values()}
        assert taken.isdisjoint(PLAIN), "layers() took a tensor that is not quantized"
        assert set(layers) == {f"{name}.weight" for name in NAMES}

    def test_tensors_are_not_changed(self, quantized_format: type[QuantizedFormat], example: Make) -> None:
        """Files may be mapped into memory."""
        examples, stored = checkpoint(example)
        before = {name: tensor.clone() for name, tensor in stored.items()}
        chosen = chosen_format(quantized_format, examples[NAMES[0]].settings)
        for layer in chosen.layers(formats(stored)).values():
            chosen.weight(layer, stored.__getitem__).zero_()
        assert all(same_bits(stored[name], tensor) for name, tensor in before.items()), (
            "weight() wrote to a tensor"
        )

    def test_checkpoints_are_not_confused(
        self, quantized_format: type[QuantizedFormat], example: Make
    ) -> None:
        """Two checkpoints with the same names, read in turn, keep their numbers."""
        pairs = [checkpoint(example, seed) for seed in (1, 2)]
        opened = [chosen_format(quantized_format, examples[NAMES[0]].settings) for examples, _ in pairs]
        for name in NAMES:
            for chosen, (examples, stored) in zip(opened, pairs, strict=True):
                layer = chosen.layers(formats(stored))[f"{name}.weight"]
                found = chosen.weight(layer, stored.__getitem__)
                torch.testing.assert_close(found, examples[name].weight, rtol=2e-7, atol=0)

    def test_modules_treat_rows_alike(self, quantized_format: type[QuantizedFormat], example: Make) -> None:
        """A row has the same output alone and among others. Skipped if the format replaces no layers."""
        examples, built = modules(quantized_format, example)
        for name, module in built.items():
            rows = random_rows(examples[name])
            alone = torch.cat([module(row[None]) for row in rows])
            check_rows(module(rows), alone)

    def test_modules_keep_the_dtype_and_shape(
        self, quantized_format: type[QuantizedFormat], example: Make
    ) -> None:
        """Tests inputs with one and with two dimensions of rows."""
        for dtype in (torch.float32, torch.bfloat16):
            examples, built = modules(quantized_format, example, dtype)
            for name, module in built.items():
                out_features, in_features = examples[name].weight.shape
                for rows in ((5,), (2, 3), (0,)):
                    outputs = module(torch.ones(*rows, in_features, dtype=dtype))
                    assert (outputs.dtype, outputs.shape) == (dtype, (*rows, out_features))

    def test_modules_round_inputs_as_stated(
        self, quantized_format: type[QuantizedFormat], example: Make
    ) -> None:
        """Skipped if the examples do not have `rounded`."""
        examples, built = modules(quantized_format, example)
        stated = {name: rounded for name in built if (rounded := examples[name].rounded) is not None}
        if not stated:
            pytest.skip(
                "the examples do not have the capability rounded (a function: inputs → rounded inputs)"
            )
        for name, rounded in stated.items():
            rows = random_rows(examples[name])
            check_rows(built[name](rows), rounded(rows.clone()) @ examples[name].weight.T + 1)

    def test_missing_tensors_are_refused(
        self, quantized_format: type[QuantizedFormat], example: Make
    ) -> None:
        """If a tensor is missing, its layer has the same weight, or is left out, or is refused."""
        examples, stored = checkpoint(example)
        for leaf in examples[NAMES[0]].tensors:
            changed = {name: each for name, each in stored.items() if name != f"{NAMES[0]}.{leaf}"}
            check_refused(quantized_format, examples[NAMES[0]], changed, f"without {leaf}")

    def test_other_shapes_are_refused(self, quantized_format: type[QuantizedFormat], example: Make) -> None:
        """Each tensor in turn is cut, repeated and flattened."""
        examples, stored = checkpoint(example)
        for leaf, tensor in examples[NAMES[0]].tensors.items():
            for what, changed in (
                ("cut", tensor[: len(tensor) // 2]),
                ("repeated", torch.cat((tensor, tensor))),
                ("flattened", tensor.reshape(-1, 1)),
            ):
                with_it = stored | {f"{NAMES[0]}.{leaf}": changed}
                if changed.shape != tensor.shape:
                    check_refused(quantized_format, examples[NAMES[0]], with_it, f"with {leaf} {what}")

    def test_other_dtypes_are_refused(self, quantized_format: type[QuantizedFormat], example: Make) -> None:
        examples, stored = checkpoint(example)
        for leaf, tensor in examples[NAMES[0]].tensors.items():
            for dtype in (torch.complex64, torch.bool):
                with_it = stored | {f"{NAMES[0]}.{leaf}": tensor.to(dtype)}
                check_refused(quantized_format, examples[NAMES[0]], with_it, f"with {leaf} in {dtype}")

    def test_other_settings_are_refused(self, quantized_format: type[QuantizedFormat], example: Make) -> None:
        """A setting with another value is refused if the weights depend on it. Tests nested settings, too."""
        examples, stored = checkpoint(example)
        first = examples[NAMES[0]]
        for key, changed in strange_settings(first.settings):
            if key != "quant_method":
                other = QuantizedExample(changed, first.tensors, first.weight)
                check_refused(quantized_format, other, stored, f"with {key} {STRANGE!r}")

    def test_settings_to_refuse_are_refused(
        self,
        quantized_format: type[QuantizedFormat],
        example: Make,
        refused: Sequence[Mapping[str, Any]],
    ) -> None:
        """Settings that change the weights in a way that the tensors do not show, such as a rotation."""
        if not refused:
            pytest.skip("no settings are given in the fixture refused, which the format must refuse")
        examples, stored = checkpoint(example)
        for further in refused:
            with pytest.raises(ModelError) as caught:
                read_all(quantized_format, {**examples[NAMES[0]].settings, **further}, stored)
            assert "\n" not in str(caught.value)


def modules(
    quantized_format: type[QuantizedFormat], example: Make, dtype: torch.dtype = torch.float32
) -> tuple[dict[str, QuantizedExample], dict[str, Any]]:
    """Return quantized layers, and the modules that replace them, by name. Their biases are 1.

    Skips the test if the format replaces no layers.
    """
    examples, stored = checkpoint(example)
    chosen = chosen_format(quantized_format, examples[NAMES[0]].settings)
    found: dict[str, Any] = {}
    for layer in chosen.layers(formats(stored)).values():
        if layer.has_module:
            linear = torch.nn.Linear(layer.in_features, layer.out_features).requires_grad_(False)
            linear.weight.copy_(examples[layer.name].weight)
            linear.bias.fill_(1)
            found[layer.name] = chosen.module(layer, linear.to(dtype), stored.__getitem__)
    if not found:
        pytest.skip("it replaces no layers by modules")
    return examples, found


def random_rows(example: QuantizedExample) -> torch.Tensor:
    """Return inputs of an example's layer, [6, in_features]: among them large ones, and zeros."""
    rows = torch.randn(6, example.weight.shape[1], generator=torch.Generator().manual_seed(1)) * 3
    rows[2] *= 100
    rows[4] = 0
    return rows


def check_rows(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert that outputs, [R, out_features], are within 0.00001 of the largest number of their row."""
    largest = expected.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(found / largest, expected / largest, rtol=0, atol=1e-5)


def strange_settings(settings: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each setting's name, and the settings with an unknown value for it; also for nested ones."""
    for key, value in settings.items():
        yield key, {**settings, key: STRANGE}
        if isinstance(value, Mapping):
            for inner, changed in strange_settings(value):
                yield f"{key}.{inner}", {**settings, key: changed}


def checkpoint(example: Make, seed: int = 1) -> tuple[dict[str, QuantizedExample], dict[str, torch.Tensor]]:
    """Return quantized layers by name, and all tensors of a checkpoint with these layers."""
    examples = {
        name: example(*shape, seed + i) for i, (name, shape) in enumerate(zip(NAMES, SHAPES, strict=True))
    }
    stored = {f"{name}.{leaf}": each for name, one in examples.items() for leaf, each in one.tensors.items()}
    return examples, {**PLAIN, **stored}


def formats(stored: Mapping[str, torch.Tensor]) -> dict[str, StoredTensor]:
    """Return the formats of tensors."""
    return {
        name: StoredTensor(str(each.dtype).removeprefix("torch."), tuple(each.shape))
        for name, each in stored.items()
    }


def chosen_format(quantized_format: type[QuantizedFormat], settings: Mapping[str, Any]) -> ChosenFormat:
    """Build a format as a server does."""
    path = f"{quantized_format.__module__}:{quantized_format.__qualname__}"
    entry = Entry("quantized_format", quantized_format.__name__, path, "tested", "tested", "")
    return ChosenFormat(entry, quantized_format, settings, LoaderGuard(entry, ComponentCalls(entry), "model"))


def read_all(
    quantized_format: type[QuantizedFormat], settings: Mapping[str, Any], stored: Mapping[str, torch.Tensor]
) -> None:
    """Build a format, and read the weights of all its layers."""
    chosen = chosen_format(quantized_format, settings)
    for layer in chosen.layers(formats(stored)).values():
        chosen.weight(layer, stored.__getitem__)


def check_refused(
    quantized_format: type[QuantizedFormat],
    first: QuantizedExample,
    stored: Mapping[str, torch.Tensor],
    what: str,
) -> None:
    """Assert that a checkpoint is refused in one line, or that its first layer keeps its weight, or is left out.

    A weight of another shape is refused when it is compared with the model: not all formats can know that
    rows are missing.
    """
    reason = ""
    found = None
    try:
        chosen = chosen_format(quantized_format, first.settings)
        layer: StoredLayer | None = chosen.layers(formats(stored)).get(f"{NAMES[0]}.weight")
        found = None if layer is None else chosen.weight(layer, stored.__getitem__)
    except ModelError as error:
        reason = str(error)
    assert "\n" not in reason, what
    is_equal = found is None or found.shape != first.weight.shape or torch.equal(found, first.weight)
    assert is_equal, f"{what}, the layer has another weight; raise ModelError"


def same_bits(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two tensors have the same bits."""
    left, right = (each.contiguous().reshape(-1).view(torch.uint8) for each in (found, expected))
    return torch.equal(left, right)
