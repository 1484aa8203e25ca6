"""Memory of keys and values is there before it is used."""

from __future__ import annotations

import ctypes
import sys

import pytest
import torch

from llmfw.core.engine.generation.kv_prefaulter import BYTES_AHEAD, TOKENS_AHEAD, KVPrefaulter, pages_ahead
from llmfw.core.interfaces.kv_storage import LARGE_PAGE, KVStorage
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.testing.attention_case import make_layer

SMALL_PAGE = 4096
DONTNEED = 4  # MADV_DONTNEED of linux/mman.h
NUM_PAGES = 10_000

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux brings memory ahead")


@pytest.fixture
def kept() -> KVStorage:
    """Two layers, each with 41 MB of keys and of values that no page is there for."""
    layers = [make_layer(index=i, head_dim=64, v_head_dim=64) for i in range(2)]
    kept = KVStorage(layers, NUM_PAGES, 16, torch.bfloat16, torch.device("cpu"))
    for tensor in (*kept.keys, *kept.values):
        give_back(tensor)
    return kept


def give_back(tensor: torch.Tensor) -> None:
    """Have the system take whole pages of zeros back, which malloc may have given out of memory that was used before."""
    begin = -(-tensor.data_ptr() // SMALL_PAGE) * SMALL_PAGE
    size = (tensor.data_ptr() + tensor.nbytes - begin) // SMALL_PAGE * SMALL_PAGE
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), DONTNEED) == 0


def share_present(tensor: torch.Tensor, pages: slice) -> float:
    """Return the share of some pages' memory that the system has brought."""
    part = tensor[pages]
    begin = part.data_ptr() // SMALL_PAGE * SMALL_PAGE
    size = part.data_ptr() + part.nbytes - begin
    found = (ctypes.c_ubyte * -(-size // SMALL_PAGE))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(size), found) == 0
    return sum(each & 1 for each in found) / len(found)


def bring_all(kv_prefaulter: KVPrefaulter) -> int:
    count = 0
    while kv_prefaulter.is_due:
        kv_prefaulter.bring()
        count += 1
    return count


def test_only_the_next_pages_are_prefaulted(kept: KVStorage) -> None:
    pool = KVPool(NUM_PAGES, 16)
    kv_prefaulter = KVPrefaulter(kept, pool, NUM_PAGES // 4)
    assert bring_all(kv_prefaulter) > 1
    for tensor in (*kept.keys, *kept.values):
        assert share_present(tensor, slice(NUM_PAGES // 4)) == 1
        assert share_present(tensor, slice(3 * NUM_PAGES // 4, NUM_PAGES)) < 0.5
    pool.free(pool.allocate(NUM_PAGES // 2))
    bring_all(kv_prefaulter)
    assert all(share_present(each, slice(3 * NUM_PAGES // 4)) == 1 for each in (*kept.keys, *kept.values))
    pool.allocate(NUM_PAGES)
    bring_all(kv_prefaulter)
    assert all(share_present(each, slice(None)) == 1 for each in (*kept.keys, *kept.values))


def test_pieces_are_small_and_prefaulted_once(
    kept: KVStorage,
) -> None:
    """A piece is at most one large page of each tensor."""
    kv_prefaulter = KVPrefaulter(kept, KVPool(NUM_PAGES, 16), NUM_PAGES)
    assert bring_all(kv_prefaulter) >= sum(kept.num_bytes) // LARGE_PAGE
    assert bring_all(kv_prefaulter) == 0


def test_prefaulting_keeps_stored_values(kept: KVStorage) -> None:
    expected = torch.randn_like(kept.values[1])
    kept.values[1].copy_(expected)
    bring_all(KVPrefaulter(kept, KVPool(NUM_PAGES, 16), NUM_PAGES))
    assert torch.equal(kept.values[1], expected)
    assert not kept.keys[0].any()


def test_a_refusing_system_is_not_asked_again(kept: KVStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmfw.core.engine.generation.kv_prefaulter.POPULATE_WRITE", 9999)
    kv_prefaulter = KVPrefaulter(kept, KVPool(NUM_PAGES, 16), NUM_PAGES)
    assert bring_all(kv_prefaulter) == 1


def test_prefaulting_is_bounded_by_tokens_and_bytes(
    kept: KVStorage,
) -> None:
    """The limit is also a fraction of the free memory."""
    page_bytes = sum(kept.num_bytes) // NUM_PAGES
    assert pages_ahead(kept, 1 << 40) == TOKENS_AHEAD // 16
    assert pages_ahead(kept, 8 * 100 * page_bytes) == 100
    layers = [make_layer(index=i, num_kv_heads=64, head_dim=256, v_head_dim=256) for i in range(2)]
    large = KVStorage(layers, 1000, 16, torch.bfloat16, torch.device("cpu"))
    assert pages_ahead(large, 1 << 40) * sum(large.num_bytes) // 1000 <= BYTES_AHEAD
    assert pages_ahead(large, 1 << 40) < TOKENS_AHEAD // 16
