"""Chooses FlashInfer's kernels for prompts: "fa2", or "fa3" for Hopper.

For a prompt of 8,192 tokens on an H200 (heads of 128, pages of one token), fa3 took 0.65 of fa2's time.
Planning takes longer on the host. According to their source code, the fa3 kernels of FlashInfer 0.6.12 have
these properties:

- They exist only for compute capability 9.0, and do not support fp8 keys and values with 16-bit queries.
- A page's keys and values must have equal strides. In `KVStorage`, this is so if keys and values have the
  same size.
- They need no scratch memory, because they never split keys. The plan fits into the wrapper's 8 MiB of
  integers: up to 4,096 tiles of 128 queries, it takes 28 bytes per tile and head; with more tiles, all heads
  share one list.
- With windows, they read the values of the sequence's first tile instead of the window's first tile. This is
  harmless, because that tile is fully masked. Windows, soft caps, and head sizes other than 128 (whose tiles
  are "not tuned") were not measured, so "auto" uses fa2 for them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from llmfw.core import ComponentError
from llmfw.core.interfaces.kv_dtype import dtype_name, is_fp8

from .kind import Kind

MEASURED_HEAD_DIM = 128


def prefill_kernels(
    option: str, kinds: Iterable[Kind], stored_as: torch.dtype, device: torch.device
) -> tuple[str, ...]:
    """Return the kernels to try, the best first.

    Args:
        option: "auto", "fa2" or "fa3".
        kinds: kinds of the layers.
        stored_as: dtype of stored keys and values.
        device: device of the kernels.

    Raises:
        ComponentError: "fa3" does not support this device or dtype.
    """
    if option == "fa2":
        return ("fa2",)
    reason = _against_fa3(stored_as, device)
    if option == "fa3":
        if reason is not None:
            raise ComponentError(f"attention.prefill_backend=fa3 {reason}")
        return ("fa3",)
    if reason is None and all(_was_measured(kind) for kind in kinds):
        return ("fa3", "fa2")
    return ("fa2",)


def _against_fa3(stored_as: torch.dtype, device: torch.device) -> str | None:
    if is_fp8(stored_as):
        return f"has no kernel for keys and values in {dtype_name(stored_as)}; fa2 has"
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) != (9, 0):
        return f"needs compute capability 9.0; this device has {major}.{minor}"
    return None


def _was_measured(kind: Kind) -> bool:
    return kind.head_dim == MEASURED_HEAD_DIM and kind.window_left < 0 and not kind.soft_cap
