"""Common code of the attention kernels: addresses of keys, and one step of an online softmax.

Scores are multiplied by log2(e), so that kernels compute powers of 2 instead of powers of e. The hardware has
an instruction only for powers of 2.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from llmfw.core import LayerSpec

LOG2_E = math.log2(math.e)

BYTES_MEAN = 256.0
"""Factor by which the numbers that `as_numbers` returns for bytes are too small."""


def score_factors(layer: LayerSpec, key_scale: float = 1.0) -> tuple[float, float]:
    """Return the kernels' `scale` and `cap`, both multiplied by log2(e).

    With a soft cap c, the kernels compute c·tanh(s/c) as c - 2c / (1 + e^(2s/c)). So `scale`, the factor of
    query·key, then includes 2/c. `cap` is the soft cap; 0.0: none. `key_scale` is the factor of the stored keys.
    """
    scale = layer.scale * key_scale
    if layer.softcap is None:
        return scale * LOG2_E, 0.0
    return scale * 2 / layer.softcap * LOG2_E, layer.softcap * LOG2_E


def padded(size: int) -> int:
    """Return `size` rounded up to a tile size that `tl.dot` accepts: a power of two, at least 16."""
    return max(16, triton.next_power_of_2(size))


def row_bytes(layer: LayerSpec, dtype: torch.dtype) -> int:
    """Return the size of a tile row in bytes: the size of a padded key or value, whichever is larger.

    `dtype` is the dtype of the queries, to which stored keys and values are converted.
    """
    return max(padded(layer.head_dim), padded(layer.v_head_dim)) * max(2, dtype.itemsize)


@triton.jit
def as_numbers(stored: tl.tensor, like: tl.tensor) -> tl.tensor:
    """Convert stored numbers to the dtype of `like`.

    Bytes are read as fp8_e4m3; the result is 2**-8 of their value. The code moves the sign to bit 15, and
    shifts the 4 exponent and 3 mantissa bits left by 7, to where float16 has the low exponent and the high
    mantissa bits. The exponent bias is 15 in float16 and 7 in fp8_e4m3, hence the factor 2**-8. Devices
    before compute capability 8.9 cannot convert fp8_e4m3 in hardware.
    """
    if stored.dtype == tl.uint8:
        wide = stored.to(tl.uint16)
        stored = (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)
    return stored.to(like.dtype)


@triton.jit
def find_slots(pages: tl.tensor, places: tl.tensor, valid: tl.tensor, page_size: tl.constexpr) -> tl.tensor:
    """Return the slots (int64) of a sequence's tokens at positions `places`.

    `pages` points to the sequence's row of the page table.
    """
    page = tl.load(pages + places // page_size, mask=valid, other=0)
    return page.to(tl.int64) * page_size + places % page_size


@triton.jit
def add_keys(
    query: tl.tensor,  # [M, D]
    keys: tl.tensor,  # [D, N]
    values: tl.tensor,  # [N, Dv]
    visible: tl.tensor,  # broadcast to [M, N]; read if `masked`
    accumulated: tl.tensor,  # [M, Dv], float32
    top: tl.tensor,  # [M]: the largest score so far
    total: tl.tensor,  # [M]: the sum of weights so far, relative to `top`
    scale: tl.tensor,
    cap: tl.tensor,
    has_cap: tl.constexpr,
    masked: tl.constexpr,
) -> tl.tensor:
    """Attend to N more keys (a step of online softmax); return new `accumulated`, `top` and `total`."""
    scores = tl.dot(query, keys, input_precision="ieee") * scale
    if has_cap:
        scores = cap - 2 * cap / (1 + tl.exp2(scores))
    if masked:
        scores = tl.where(visible, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    # A row that has seen no key yet has a top of -inf, and -inf - -inf is not 0.
    base = tl.where(new_top == float("-inf"), 0.0, new_top) if masked else new_top
    weights = tl.exp2(scores - base[:, None])
    decay = tl.exp2(top - base)
    total = total * decay + tl.sum(weights, 1)
    accumulated = accumulated * decay[:, None]
    accumulated = tl.dot(weights.to(values.dtype), values, accumulated, input_precision="ieee")
    return accumulated, new_top, total
