"""Conformance tests of the `AttentionBackend` interface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_dtype import as_bytes

from .attention_case import AttentionCase, make_layer
from .tensors import TensorTests

RAGGED = [(0, 1), (1, 1), (15, 1), (16, 1), (200, 1), (0, 7), (0, 33), (16, 5), (31, 40), (3, 2)]
"""(cached tokens, new tokens) of each sequence: lengths just below, at and above multiples of the page size
16."""

BORDERS = [(63, 1), (127, 1), (15, 1), (255, 1), (64, 1), (0, 64), (64, 64), (0, 128), (100, 28), (300, 20)]
"""Lengths at and just above multiples of the sizes of blocks that kernels have."""

LONG = [(299, 1), (300, 1), (511, 1), (700, 1), (1030, 1), (2100, 1), (290, 20), (640, 20)]

VERY_LONG = [(4500, 1), (5, 1), (4150, 3)]

MANY = [(7 * number % 15, 1) for number in range(66)] + [(number % 6, 2) for number in range(34)]
"""Short sequences: more than 64 of one new token, and more than 32 of two."""

STEP = [(20, 1), (35, 1), (60, 1), (5, 7)]
NEXT_STEP = [(21, 1), (50, 1), (40, 1), (6, 7)]
"""As many pages of 16 tokens as `STEP`. Lengths grow within a page and beyond, and one is smaller."""

TOLERANCES = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}
"""Maximum difference from the result in float64, by dtype, which allows for rounding of inputs and sums."""
TOLERANCES_OF_LARGE_SCORES = TOLERANCES | {torch.float32: 3e-5}
"""The same where scores reach 50, as float32 rounds these by 2e-6, and the weights with them."""

LAYERS: dict[str, dict[str, Any]] = {
    "grouped heads": {},
    "a key head for each head": {"num_heads": 3, "num_kv_heads": 3},
    "one key head": {"num_heads": 8, "num_kv_heads": 1},
    "window": {"sliding_window": 5},
    "soft cap": {"softcap": 2.0},
    "window and soft cap": {"softcap": 2.0, "sliding_window": 20},
}

FP8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}


class AttentionBackendTests(TensorTests):
    """Conformance tests of an attention backend.

    Derive from this class and override the fixture `backend`, and other fixtures if their defaults do not
    fit. Tests with layers that the backend reports as unsupported are skipped with its reason.
    """

    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        """Return the class of the backend under test."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture backend")

    @pytest.fixture
    def head_dim(self) -> int:
        """Return the number of elements of a head."""
        return 16

    @pytest.mark.parametrize("page_size", [1, 16])
    @pytest.mark.parametrize("changes", LAYERS.values(), ids=LAYERS)
    def test_equals_attention_in_float64(
        self,
        backend: type[AttentionBackend],
        changes: dict[str, Any],
        page_size: int,
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        spec = make_layer(**({"head_dim": head_dim} | changes))
        skip_unsupported(backend, AttentionCase(spec, RAGGED, page_size, dtype, device)).check(
            backend, TOLERANCES[dtype]
        )

    def test_long_sequences_are_attended_to_completely(
        self, backend: type[AttentionBackend], dtype: torch.dtype, device: str, head_dim: int
    ) -> None:
        """Each token attends to few others at any distance, so a result that lacks one is clearly wrong."""
        spec = make_layer(head_dim=head_dim, scale=1.0)
        skip_unsupported(backend, AttentionCase(spec, LONG, 16, dtype, device)).check(
            backend, TOLERANCES_OF_LARGE_SCORES[dtype]
        )

    def test_thousands_of_tokens_are_attended_to(
        self, backend: type[AttentionBackend], dtype: torch.dtype, device: str, head_dim: int
    ) -> None:
        """Each token of a sequence of 4,501 attends to all tokens before it, as in shorter sequences."""
        spec = make_layer(head_dim=head_dim, num_heads=2, num_kv_heads=1, scale=1.0)
        skip_unsupported(backend, AttentionCase(spec, VERY_LONG, 16, dtype, device)).check(
            backend, TOLERANCES_OF_LARGE_SCORES[dtype]
        )

    def test_a_large_batch_equals_attention_in_float64(
        self, backend: type[AttentionBackend], dtype: torch.dtype, device: str, head_dim: int
    ) -> None:
        """A sequence's result is right at any place in a batch of 100 sequences."""
        spec = make_layer(head_dim=head_dim, num_heads=2, num_kv_heads=1)
        skip_unsupported(backend, AttentionCase(spec, MANY, 16, dtype, device)).check(
            backend, TOLERANCES[dtype]
        )

    @pytest.mark.parametrize("spoilt", [0, 1])
    @pytest.mark.parametrize("page_size", [1, 16])
    def test_pages_of_others_do_not_matter(
        self,
        backend: type[AttentionBackend],
        page_size: int,
        spoilt: int,
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        """NaN in free pages, and in every second sequence, reaches no other sequence."""
        spec = make_layer(head_dim=head_dim)
        case = skip_unsupported(backend, AttentionCase(spec, BORDERS, page_size, dtype, device))
        expected = case.expected()
        whole = case.spoil(spoilt)
        found = case.run(backend).double()
        assert_close(found[whole], expected[whole], dtype)

    def test_value_size_may_differ_from_key_size(
        self, backend: type[AttentionBackend], dtype: torch.dtype, device: str, head_dim: int
    ) -> None:
        spec = make_layer(head_dim=head_dim, v_head_dim=head_dim // 2)
        skip_unsupported(backend, AttentionCase(spec, RAGGED, 1, dtype, device)).check(
            backend, TOLERANCES[dtype]
        )

    @pytest.mark.parametrize("page_size", [1, 16])
    @pytest.mark.parametrize("window", [None, 20])
    def test_tokens_see_later_ones(
        self,
        backend: type[AttentionBackend],
        window: int | None,
        page_size: int,
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        """The tokens of an image attend to each other in both directions, if the backend can look ahead."""
        if not backend.looks_ahead:
            pytest.skip("the backend does not look ahead")
        spec = make_layer(head_dim=head_dim, sliding_window=window)
        case = skip_unsupported(backend, AttentionCase(spec, RAGGED, page_size, dtype, device))
        case.look_ahead()
        case.check(backend, TOLERANCES[dtype])

    @pytest.mark.parametrize("page_size", [1, 16])
    @pytest.mark.parametrize("has_sinks", [False, True])
    def test_tokens_see_what_the_model_selects(
        self,
        backend: type[AttentionBackend],
        has_sinks: bool,
        page_size: int,
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        """Each token attends only to selected tokens, if the backend heeds the model's selection."""
        if not backend.heeds_selection:
            pytest.skip("the backend attends to all tokens")
        spec = make_layer(head_dim=head_dim, has_sinks=has_sinks, selects=True)
        case = skip_unsupported(backend, AttentionCase(spec, RAGGED, page_size, dtype, device))
        case.select(5)
        sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=dtype) if has_sinks else None
        case.check(backend, TOLERANCES[dtype], sinks)

    @pytest.mark.parametrize("window", [None, 9])
    def test_sinks_add_to_the_softmax_denominator(
        self,
        backend: type[AttentionBackend],
        window: int | None,
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        spec = make_layer(head_dim=head_dim, has_sinks=True, sliding_window=window)
        case = skip_unsupported(backend, AttentionCase(spec, RAGGED, 1, dtype, device))
        case.check(backend, TOLERANCES[dtype], torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=dtype))

    def test_only_the_new_tokens_are_written(
        self, backend: type[AttentionBackend], dtype: torch.dtype, device: str, head_dim: int
    ) -> None:
        spec = make_layer(head_dim=head_dim)
        case = skip_unsupported(backend, AttentionCase(spec, RAGGED, 16, dtype, device))
        slots = case.batch.slots.cpu()
        wanted = []
        for stored, new in ((case.storage.keys[0], case.key), (case.storage.values[0], case.value)):
            whole = stored.detach().cpu().clone().flatten(0, 1)
            whole[slots] = new
            wanted.append(whole)
        case.run(backend)
        assert torch.equal(case.storage.keys[0].cpu().flatten(0, 1), wanted[0])
        assert torch.equal(case.storage.values[0].cpu().flatten(0, 1), wanted[1])

    @pytest.mark.parametrize(
        ("scales", "changes"),
        [((1.0, 1.0), {}), ((0.03, 0.7), {"softcap": 2.0, "sliding_window": 20})],
        ids=["plain", "scales, window and soft cap"],
    )
    @pytest.mark.parametrize("stored_as", FP8.values(), ids=FP8)
    def test_equals_attention_over_fp8_keys_and_values(
        self,
        backend: type[AttentionBackend],
        stored_as: torch.dtype,
        scales: tuple[float, float],
        changes: dict[str, Any],
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        spec = make_layer(**({"head_dim": head_dim} | changes))
        case = AttentionCase(spec, RAGGED, 16, dtype, device, stored_as=stored_as, scales=scales)
        skip_unsupported(backend, case).check(backend, TOLERANCES[dtype])

    @pytest.mark.parametrize("stored_as", FP8.values(), ids=FP8)
    def test_fp8_values_saturate_at_the_largest_number(
        self,
        backend: type[AttentionBackend],
        stored_as: torch.dtype,
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        """Keys and values outside the range of FP8 are stored as its largest number with the same sign."""
        spec = make_layer(head_dim=head_dim)
        case = AttentionCase(spec, RAGGED, 16, dtype, device, stored_as=stored_as, scales=(0.01, 0.002))
        skip_unsupported(backend, case)
        case.key.mul_(1000)
        case.value.mul_(1000)
        wanted = case.codes()
        case.run(backend)
        for stored, codes in zip((case.storage.keys[0], case.storage.values[0]), wanted, strict=True):
            assert torch.equal(as_bytes(stored).cpu().flatten(0, 1), codes)
            assert codes.view(stored_as).double().abs().max() == torch.finfo(stored_as).max

    def test_one_backend_runs_consecutive_steps(
        self, backend: type[AttentionBackend], dtype: torch.dtype, device: str, head_dim: int
    ) -> None:
        spec = make_layer(head_dim=head_dim)
        case = skip_unsupported(backend, AttentionCase(spec, RAGGED, 1, dtype, device))
        built = case.build(backend)
        other = replace(case.batch, num_single=0, query_lens=case.batch.query_lens[-1:])
        other = replace(other, kv_lens=case.batch.kv_lens[-1:], rows=case.batch.rows[-1:])
        other = replace(other, slots=case.batch.slots[-2:], positions=case.batch.positions[-2:])
        query, key, value = (tensor[-2:].to(device) for tensor in (case.query, case.key, case.value))
        for _ in range(2):
            built.plan(case.batch)
            found = case.forward(built).double()
            torch.testing.assert_close(found, case.expected(), atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])
            built.plan(other)
            alone = built.forward(query, key, value, spec, other).cpu().double()
            torch.testing.assert_close(
                alone, case.expected()[-2:], atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype]
            )

    @pytest.mark.parametrize("lengths", [STEP, NEXT_STEP], ids=["equal lengths", "other lengths"])
    @pytest.mark.parametrize("same_rows", [False, True], ids=["other rows", "same rows"])
    def test_each_step_reads_its_own_pages(
        self,
        backend: type[AttentionBackend],
        same_rows: bool,
        lengths: list[tuple[int, int]],
        dtype: torch.dtype,
        device: str,
        head_dim: int,
    ) -> None:
        """New sequences have replaced those of the earlier step, in the same page table and storage."""
        spec = make_layer(head_dim=head_dim)
        first = skip_unsupported(backend, AttentionCase(spec, STEP, 16, dtype, device))
        rows = first.batch.rows.cpu().numpy() if same_rows else None
        built = first.build(backend)
        built.plan(first.batch)
        assert_close(first.forward(built).double(), first.expected(), dtype)
        for seed in (1, 2):
            case = AttentionCase(spec, lengths, 16, dtype, device, seed=seed, rows=rows)
            case.follow(first)
            built.plan(case.batch)
            assert_close(case.forward(built).double(), case.expected(), dtype)

    def test_static_steps_are_planned_again_correctly(
        self, backend: type[AttentionBackend], dtype: torch.dtype, device: str, head_dim: int
    ) -> None:
        spec = make_layer(head_dim=head_dim)
        cases = [
            AttentionCase(spec, [(stored, 1) for stored in lengths], 1, dtype, device, seed=seed)
            for seed, lengths in enumerate([(0, 3, 40), (90, 1, 2), (0, 0, 0)])
        ]
        built = skip_unsupported(backend, cases[0]).build(backend)
        if reason := built.graph_unsupported():
            pytest.skip(reason)
        for case in cases:
            static = case.build(backend)
            case.batch = replace(case.batch, is_static=True)
            for _ in range(2):
                static.plan(case.batch)
                found = case.forward(static).double()
                torch.testing.assert_close(
                    found, case.expected(), atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype]
                )


def assert_close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Assert that a result equals the float64 reference, except for the rounding of a dtype."""
    torch.testing.assert_close(found, expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


def skip_unsupported(backend: type[AttentionBackend], case: AttentionCase) -> AttentionCase:
    """Return the case; if the backend does not support it, skip the test with the backend's reason."""
    dtype, stored_as, device = case.storage.dtype, case.storage.stored_as, str(case.device)
    reason = backend.unsupported([case.spec], device, dtype)
    if reason is None and stored_as != dtype:
        reason = backend.storage_unsupported(device, dtype, stored_as)
    if reason:
        pytest.skip(reason)
    return case
