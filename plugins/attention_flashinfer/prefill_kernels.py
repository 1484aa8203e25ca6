"""Chooses which of FlashInfer's kernels compute prompts: "fa2", or "fa3" for Hopper.

fa3 took 0.65 of fa2's time for a prompt of 8,192 tokens on an H200 (heads of 128, pages of one token). Its plan takes
longer on the host. What holds for its kernels in 0.6.12, read in their source:

- They exist for compute capability 9.0 alone, and not for fp8 keys and values with queries in 16 bits.
- A page's keys and values must have equal strides: `KVStorage` has them where both have the same size.
- They need no scratch memory, because they never split keys. The plan fits into the wrapper's 8 MiB of integers: at
  most 4,096 tiles of 128 queries times 28 bytes for each head, above that one list for all heads.
- With windows they read the values of a sequence's first tile in place of those of the first tile of the window, which
  is harmless, since that tile is wholly masked. Windows, soft caps, and sizes of heads other than 128, whose tiles are
  "not tuned", were not measured. So "auto" leaves those to fa2.
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
        ComponentError: "fa3" cannot serve this.
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
