"""The writes of the FlashInfer backend by the Triton kernel, in Triton's interpreter.

Run by test_interpreted_kernels.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.testing.attention import RAGGED
from llmfw.core.testing.attention_case import AttentionCase, make_layer
from llmfw.plugins.attention_flashinfer import writer
from llmfw.plugins.attention_flashinfer.backend import FlashInferAttention

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@pytest.fixture
def by_kernel(
    monkeypatch: pytest.MonkeyPatch, flashinfer: type[FlashInferAttention]
) -> type[FlashInferAttention]:
    """Return the backend, which must not choose torch's operators."""

    def choose(*args: Any) -> writer.Writer:
        chosen = writer.choose_writer(*args)
        assert chosen is not KVStorage.write
        return chosen

    monkeypatch.setattr("llmfw.plugins.attention_flashinfer.backend.choose_writer", choose)
    return flashinfer


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize(
    ("dtype", "stored_as", "scales"),
    [
        (torch.float32, torch.float32, (1.0, 1.0)),
        (torch.float16, torch.float16, (1.0, 1.0)),
        (torch.float16, E4M3, (0.25, 3.0)),
        (torch.float32, E4M3, (1.0, 1.0)),
        (torch.float16, E5M2, (1.0, 0.1)),
    ],
    ids=str,
)
def test_the_kernel_stores_slices_of_a_product(
    by_kernel: type[FlashInferAttention],
    dtype: torch.dtype,
    stored_as: torch.dtype,
    scales: tuple[float, float],
    page_size: int,
) -> None:
    case = AttentionCase(
        make_layer(head_dim=64), RAGGED, page_size, dtype, stored_as=stored_as, scales=scales
    )
    expected = case.codes()
    product = torch.cat([x.flatten(1) for x in (case.query, case.key, case.value)], dim=-1)
    parts = product.split([x[0].numel() for x in (case.query, case.key, case.value)], dim=-1)
    case.query, case.key, case.value = (part.unflatten(-1, (-1, 64)) for part in parts)
    assert case.batch.slots.dtype == torch.int64
    assert not case.key.is_contiguous()
    case.run(by_kernel)
    for found, wanted in zip((case.storage.keys[0], case.storage.values[0]), expected, strict=True):
        assert torch.equal(found.view(wanted.dtype).flatten(0, 1), wanted)


def test_scattered_keys_are_made_contiguous(by_kernel: type[FlashInferAttention]) -> None:
    case = AttentionCase(make_layer(head_dim=64), RAGGED, 1)
    expected = case.codes()
    case.key, case.value = (x.mT.contiguous().mT for x in (case.key, case.value))
    assert case.key.stride(-1) != 1
    case.run(by_kernel)
    assert torch.equal(case.storage.keys[0].flatten(0, 1), expected[0])


def test_a_wrong_kernel_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, flashinfer: type[FlashInferAttention]
) -> None:
    monkeypatch.setattr("llmfw.core.kernels.kv_kernel.write", lambda *args: None)
    case = AttentionCase(make_layer(head_dim=64), RAGGED, 1)
    assert writer.choose_writer([case.spec], case.storage) is KVStorage.write
    assert "written by torch's operators, not by the Triton kernel: it stores other numbers" in caplog.text
    case.check(flashinfer, 1e-5)
