"""Chooses the dtype that a model is served in: `--dtype`."""

from __future__ import annotations

import torch

from llmfw.core.base.errors import ConfigError

from .devices import has_fast_bfloat16

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def choose_dtype(asked: str, checkpoint: torch.dtype | str | None, device: torch.device) -> torch.dtype:
    """Return the dtype to serve a model in.

    "auto" means the dtype of the checkpoint. On a CPU, 16-bit checkpoints are served in bfloat16 if the CPU
    has bfloat16 instructions, otherwise in float32.
    """
    if asked != "auto":
        if asked not in DTYPES:
            raise ConfigError(f"dtype is {asked!r}; it must be auto or one of {', '.join(sorted(DTYPES))}")
        return DTYPES[asked]
    found = (
        DTYPES.get(checkpoint, torch.float32) if isinstance(checkpoint, str) else checkpoint or torch.float32
    )
    if device.type == "cpu" and found in (torch.float16, torch.bfloat16):
        return torch.bfloat16 if has_fast_bfloat16() else torch.float32
    return found
