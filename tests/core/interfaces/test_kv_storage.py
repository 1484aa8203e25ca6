"""Where keys and values stand in a CPU's memory."""

from __future__ import annotations

import itertools

import torch

from llmfw.core.interfaces.kv_storage import LARGE_PAGE, LINE, KVStorage
from llmfw.core.testing.attention_case import make_layer

CPU = torch.device("cpu")


def storage(num_layers: int, num_pages: int) -> KVStorage:
    layers = [make_layer(index=i, head_dim=24, v_head_dim=40) for i in range(num_layers)]
    return KVStorage(layers, num_pages, 16, torch.bfloat16, CPU)


def test_keys_and_values_are_aligned_zeros() -> None:
    kept = storage(5, 7)
    for tensor, size in [*((k, 24) for k in kept.keys), *((v, 40) for v in kept.values)]:
        assert tensor.shape == (7, 16, 2, size)
        assert tensor.is_contiguous()
        assert tensor.data_ptr() % LINE == 0
        assert not tensor.any()


def test_layers_cross_large_pages_at_different_tokens() -> None:
    kept = storage(10, 3)
    places = sorted(tensor.data_ptr() % LARGE_PAGE for tensor in (*kept.keys, *kept.values))
    gaps = [after - before for before, after in itertools.pairwise(places)]
    assert min(gaps) >= LARGE_PAGE // 20 - LINE


def test_no_tensor_overlaps_another() -> None:
    kept = storage(4, 3)
    stretches = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in (*kept.keys, *kept.values))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(stretches))
