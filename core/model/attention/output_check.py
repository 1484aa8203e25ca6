"""Checks the output of an attention backend."""

from __future__ import annotations

import torch

from llmfw.core.plugin.returned import WrongReturnError


def check_output(output: object, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise WrongReturnError if the output of `forward` has another shape or dtype than the interface says."""
    if not isinstance(output, torch.Tensor):
        raise WrongReturnError(f"forward() returned {type(output).__name__} in place of a tensor")
    if output.shape != shape or output.dtype != dtype:
        raise WrongReturnError(
            f"forward() returned {output.dtype} {list(output.shape)} in place of {dtype} {list(shape)}"
        )
