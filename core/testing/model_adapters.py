"""Conformance tests of the `ModelAdapter` interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import AutoConfig

from llmfw.core.interfaces.layers import LayerSpec
from llmfw.core.interfaces.model_adapter import ModelAdapter
from llmfw.core.model.attention.hf_attention import register_with_transformers
from llmfw.core.model.attention.plain_attention import PlainStep, plain_attention
from llmfw.core.model.changes.chosen_adapter import ChosenAdapter
from llmfw.core.model.changes.fuse import merge_projections
from llmfw.core.model.config.layer_count import layer_count_name
from llmfw.core.model.probe.isolation import check_isolation
from llmfw.core.model.probe.positions import check_positions
from llmfw.core.model.probe.probe import probe
from llmfw.core.model.trial.packed import run_packed
from llmfw.core.plugin.registry import Entry

from .declared import declared
from .tensors import TensorTests

LENGTHS = (1, 40, 7, 19)
"""Lengths of the sequences that are packed into one row."""
PIECES = (1, 9, 1, 1, 14, 1, 1)
"""Numbers of tokens of a sequence that are computed in each step."""
TOLERANCES = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Maximum change of a token's logits, relative to their norm."""
Config = dict[str, Any]


class ModelAdapterTests(TensorTests):
    """Conformance tests of a model adapter.

    Derive from this class and override the fixture `adapter`, and others if their defaults do not fit. An
    adapter declares `conformance = {"configs": [...]}`, or the test class overrides the fixture `configs`.
    The tests build models of the configs with random weights, and compare them with transformers' own code.
    """

    needed: ClassVar = {
        "configs": (
            list[Config],
            'fields of small configs, at least one for each of its types, such as [{"model_type": "gptj", "n_embd": 64}]',
        )
    }

    @pytest.fixture
    def adapter(self) -> type[ModelAdapter]:
        """Return the class of the adapter under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture adapter")

    @pytest.fixture
    def configs(self, adapter: type[ModelAdapter]) -> Sequence[Mapping[str, Any]]:
        """Return the fields of the configs of small models: each type, each variant, windows of a few tokens.

        The models must take sequences of 64 tokens.
        """
        found: Sequence[Mapping[str, Any]] | None = declared(adapter, "configs", None)
        if found is None:
            raise NotImplementedError(
                f"{type(self).__name__} has to override the fixture configs, or {adapter.__name__} has to declare "
                'conformance = {"configs": […]}'
            )
        return found

    def test_each_model_type_has_a_config(
        self, adapter: type[ModelAdapter], configs: Sequence[Mapping[str, Any]]
    ) -> None:
        assert isinstance(adapter.model_types, tuple)
        assert set(adapter.model_types) == {config["model_type"] for config in configs}

    def test_supported_configs_are_only_read(
        self, adapter: type[ModelAdapter], configs: Sequence[Mapping[str, Any]]
    ) -> None:
        for fields in configs:
            config = make_config(fields)
            before = config.to_dict()
            assert adapter.unsupported(config) is None, f"these tests need configs that it supports: {fields}"
            assert config.to_dict() == before

    def test_the_logits_of_several_sequences_stay_the_same(
        self,
        adapter: type[ModelAdapter],
        configs: Sequence[Mapping[str, Any]],
        device: str,
        dtype: torch.dtype,
    ) -> None:
        """Holds after llmfw has merged projections, too."""
        for fields in configs:
            model = build_model(fields, device, dtype)
            sequences = [tokens(length, start, model) for start, length in enumerate(LENGTHS)]
            before = torch.cat([original_logits(model, ids) for ids in sequences])
            layers = adapted_layers(adapter(), model)
            merge_projections(model)
            after = run_packed(model, sequences, PlainStep(layers, LENGTHS))
            assert_close(after, before, dtype, fields)

    def test_later_steps_continue_a_sequence(
        self, adapter: type[ModelAdapter], configs: Sequence[Mapping[str, Any]], device: str
    ) -> None:
        """Keys and values of earlier steps come from llmfw's cache; the layers keep no data."""
        for fields in configs:
            model = build_model(fields, device, torch.float32)
            ids = tokens(sum(PIECES), 5, model)
            before = original_logits(model, ids)
            layers = adapted_layers(adapter(), model)
            assert_close(run_in_pieces(model, ids, layers), before, torch.float32, fields)

    def test_a_sequence_does_not_depend_on_others(
        self, adapter: type[ModelAdapter], configs: Sequence[Mapping[str, Any]], device: str
    ) -> None:
        """llmfw refuses models that mix the tokens of a row, or number them by themselves."""
        for fields in configs:
            model = build_model(fields, device, torch.float32)
            adapted_layers(adapter(), model)
            check_positions(model)
            check_isolation(model, vocab_size(model))

    def test_an_adapter_adapts_models_independently(
        self, adapter: type[ModelAdapter], configs: Sequence[Mapping[str, Any]], device: str
    ) -> None:
        """One adapter adapts each model twice, because a model may have to be loaded again."""
        one, length = adapter(), 30
        adapted: list[tuple[Mapping[str, Any], Any, torch.Tensor, list[LayerSpec]]] = []
        for fields in [*configs, *configs]:
            model = build_model(fields, device, torch.float32, seed=len(adapted))
            before = original_logits(model, tokens(length, 2, model))
            adapted.append((fields, model, before, adapted_layers(one, model)))
        for fields, model, before, layers in adapted:
            after = run_packed(model, [tokens(length, 2, model)], PlainStep(layers, [length]))
            assert_close(after, before, torch.float32, fields)

    def test_weights_keep_their_names_and_values(
        self, adapter: type[ModelAdapter], configs: Sequence[Mapping[str, Any]], device: str
    ) -> None:
        for fields in configs:
            model = build_model(fields, device, torch.float32)
            before = {name: value.clone() for name, value in model.state_dict().items()}
            adapted_layers(adapter(), model)
            after = model.state_dict()
            assert list(after) == list(before)
            assert [name for name, value in before.items() if not torch.equal(after[name], value)] == []


def make_config(fields: Mapping[str, Any]) -> Any:
    """Return the config of transformers with these fields."""
    others = {name: value for name, value in fields.items() if name != "model_type"}
    return AutoConfig.for_model(fields["model_type"], **others)


def build_model(fields: Mapping[str, Any], device: str, dtype: torch.dtype, seed: int = 3) -> Any:
    """Return a model with random weights and transformers' eager attention, in evaluation mode."""
    register_with_transformers()
    torch.manual_seed(seed)
    model: Any = AutoModelForCausalLM.from_config(
        make_config(fields), dtype=dtype, attn_implementation="eager"
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, device="cpu").to(dtype)
            parameter.copy_(0.15 * noise if parameter.dim() > 1 else parameter + 0.1 * noise)
    return model.to(device).eval().requires_grad_(False)


def vocab_size(model: Any) -> int:
    """Return the number of tokens that a model knows."""
    size: int = model.config.get_text_config(decoder=True).vocab_size
    return size


def tokens(length: int, start: int, model: Any) -> list[int]:
    """Return token ids of a sequence; another `start` gives other ones."""
    return [(7 * i * i + 11 * i + 5 * start + 3) % vocab_size(model) for i in range(length)]


def original_logits(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Return the logits of a model that is not adapted, [T, vocab]."""
    with torch.inference_mode():
        given = torch.tensor([list(ids)], device=model.device)
        logits: torch.Tensor = model(input_ids=given, use_cache=False).logits
    return logits[0].float()


def adapted_layers(adapter: ModelAdapter, model: Any) -> list[LayerSpec]:
    """Adapt a model as llmfw does; return its attention layers by index."""
    kind = type(adapter)
    path = f"{kind.__module__}:{kind.__qualname__}"
    entry = Entry("model_adapter", kind.__name__, path, "under-test", "under-test", "0")
    text_config = model.config.get_text_config(decoder=True)
    count = getattr(text_config, layer_count_name(text_config))
    ChosenAdapter(entry, adapter).apply(model, count, vocab_size(model))
    return probe(model, count, vocab_size(model), may_lack_masks=True)


def run_in_pieces(model: Any, ids: Sequence[int], layers: Sequence[LayerSpec]) -> torch.Tensor:
    """Return the logits of a sequence that is computed in several steps, [T, vocab]."""
    step, done, logits = _ContinuingStep(layers), 0, []
    for size in PIECES:
        given = torch.tensor([list(ids[done : done + size])], device=model.device)
        positions = torch.arange(done, done + size, device=model.device)[None]
        with torch.inference_mode():
            output = model(input_ids=given, position_ids=positions, use_cache=False, llmfw_step=step)
        logits.append(output.logits[0].float())
        done += size
    return torch.cat(logits)


class _ContinuingStep:
    """Computes the attention of one sequence in several steps, and keeps its keys and values."""

    def __init__(self, layers: Sequence[LayerSpec]) -> None:
        self._layers = layers
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}

    def attend(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        *,
        s_aux: torch.Tensor | None = None,
        **kwargs: object,
    ) -> torch.Tensor:
        index = module.layer_idx
        for kept, new in ((self._keys, key), (self._values, value)):
            kept[index] = torch.cat([kept[index], new], dim=2) if index in kept else new
        return plain_attention(query, self._keys[index], self._values[index], self._layers[index], s_aux)


def assert_close(
    found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, fields: Mapping[str, Any]
) -> None:
    """Assert that each token's logits differ by rounding alone."""
    moved = (found.double() - expected.double()).norm(dim=-1) / expected.double().norm(dim=-1)
    place = int(moved.argmax())
    assert float(moved[place]) <= TOLERANCES[dtype], f"the logits of token {place} changed, with {fields}"
