"""Conformance tests of the `ModulePass` interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from llmfw.core.interfaces.module_pass import ModulePass
from llmfw.core.model.changes.fuse import merge_projections

from .module_pass_models import FAMILIES, Unusual, build_model, logits_of, parameters_of, unusual_kinds
from .tensors import TensorTests

STEPS = ([1], [1], [2, 1], [2, 1])
"""Lengths of the sequences in each step that a model runs. Each step has different tokens."""
SHORT = [2, 1]
LARGE = [700, *[1] * 150, *[2] * 75]


class ModulePassTests(TensorTests):
    """Conformance tests of a module pass.

    Derive from this class and override the fixture `module_pass`, and other fixtures if their defaults do not
    fit. The tests use transformers models with random weights and llmfw's attention. Tests with a dtype that
    the pass reports as unsupported are skipped with its reason.
    """

    @pytest.fixture
    def module_pass(self) -> type[ModulePass]:
        """Return the class of the pass under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture module_pass")

    @pytest.fixture
    def tolerance(self, dtype: torch.dtype) -> float:
        """Return the maximum change of a token's logits relative to their norm: a few rounding errors."""
        return {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}[dtype]

    @pytest.fixture
    def large_step(self) -> Sequence[int]:
        """Return the lengths of the sequences in a large step: one long sequence and many short ones.

        Return fewer tokens only if the device is very slow.
        """
        return LARGE

    @pytest.fixture
    def hidden_weights(self) -> frozenset[str]:
        """Return the endings of the names of weights that the pass removes.

        The documentation of the pass must list these weights.
        """
        return frozenset()

    @pytest.fixture
    def applied(self, module_pass: type[ModulePass], device: str, dtype: torch.dtype) -> ModulePass:
        """Return the pass; skip the test if the pass does not support the device or dtype."""
        if reason := module_pass.unsupported(device, dtype):
            pytest.skip(reason)
        return module_pass()

    @pytest.mark.parametrize("family", FAMILIES)
    def test_the_logits_stay_the_same(
        self, applied: ModulePass, family: str, device: str, dtype: torch.dtype, tolerance: float
    ) -> None:
        model = build_model(family, device, dtype)
        merge_projections(model)
        before = [logits_of(model, lengths, step) for step, lengths in enumerate(STEPS)]
        kinds = [type(module) for module in model.modules()]
        count = applied.apply(model)
        for step, lengths in enumerate(STEPS):
            assert_close(logits_of(model, lengths, step), before[step], tolerance)
        if count == 0:
            assert [type(module) for module in model.modules()] == kinds
            assert torch.equal(logits_of(model, STEPS[0], 0), before[0])

    @pytest.mark.parametrize("family", FAMILIES)
    def test_the_logits_of_large_steps_stay_the_same(
        self,
        applied: ModulePass,
        family: str,
        large_step: Sequence[int],
        device: str,
        dtype: torch.dtype,
        tolerance: float,
    ) -> None:
        """Holds for each of a thousand tokens, in a long sequence and in many short ones."""
        if family == "mixtral" and dtype != torch.float32:
            pytest.skip("rounding changes the experts of a few tokens in a large step")
        model = build_model(family, device, dtype)
        merge_projections(model)
        before = logits_of(model, large_step)
        applied.apply(model)
        assert_close(logits_of(model, large_step), before, tolerance)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_a_second_pass_changes_nothing(
        self, applied: ModulePass, family: str, device: str, dtype: torch.dtype
    ) -> None:
        model = build_model(family, device, dtype)
        applied.apply(model)
        modules, expected = list(model.modules()), logits_of(model, SHORT)
        assert applied.apply(model) == 0
        assert list(model.modules()) == modules
        assert torch.equal(logits_of(model, SHORT), expected)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_weights_keep_their_names_and_values(
        self,
        applied: ModulePass,
        family: str,
        device: str,
        dtype: torch.dtype,
        hidden_weights: frozenset[str],
    ) -> None:
        model = build_model(family, device, dtype)
        before = {name: value.clone() for name, value in parameters_of(model).items()}
        applied.apply(model)
        for name, value in before.items():
            if not any(name.endswith(hidden) for hidden in hidden_weights):
                assert torch.equal(weight_at(model, name), value), name
        assert len(set(model.state_dict())) <= len(before)

    @pytest.mark.parametrize("kind", unusual_kinds())
    def test_unusual_modules_are_left_unchanged(
        self, applied: ModulePass, kind: str, device: str, dtype: torch.dtype, tolerance: float
    ) -> None:
        model = build_model("llama", device, dtype)
        unusual = Unusual(model, kind)
        expected = logits_of(model, SHORT)
        applied.apply(model)
        unusual.calls = 0
        assert_close(logits_of(model, SHORT), expected, tolerance)
        assert unusual.calls > 0


def assert_close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Assert that each token's logits differ by at most `tolerance` relative to their norm.

    Args:
        found, expected: logits: [T, vocab].
        tolerance: maximum norm of the difference, relative to the norm of `expected`.
    """
    moved = (found.double() - expected.double()).norm(dim=-1) / expected.double().norm(dim=-1)
    place = int(moved.argmax())
    assert float(moved[place]) <= tolerance, f"the logits of token {place} of {len(moved)} changed too much"


def weight_at(model: nn.Module, name: str) -> torch.Tensor:
    """Return the tensor with a weight's name.

    After a pass, the weight may be an attribute that a module computes on access.
    """
    found: Any = model
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, torch.Tensor)
    return found
