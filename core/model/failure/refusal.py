"""Refuses a loaded model: errors that name its class, and the texts that these errors share."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from llmfw.core.base.errors import LLMFWError, ModelError

from .load_failure import explained

logger = logging.getLogger(__name__)


def name_layers(indices: Sequence[int], total: int) -> str:
    """Return text that names at most eight layers by index, such as "layers 0, 2 of 4"."""
    listed = ", ".join(map(str, indices[:8])) + (", …" if len(indices) > 8 else "")
    return f"layer{'s' if len(indices) > 1 else ''} {listed} of {total}"


def refused(model: nn.Module, reason: str) -> ModelError:
    """Return a ModelError with the name of the model's class and this reason."""
    return ModelError(f"{type(model).__name__} cannot be served: {reason}")


def not_finite(model: nn.Module, what: str) -> str:
    """Return a message that a result is NaN or infinite.

    If a buffer of the model is not finite, either, the message names that buffer.

    Args:
        what: result that is not finite, as a plural noun phrase.
    """
    spoiled = [name for name, buffer in model.named_buffers() if not _is_finite(buffer)]
    cause = f" ({spoiled[0]} is NaN or infinite)" if spoiled else ""
    return (
        f"{what} are not finite numbers{cause}; compare its config with the original, or try --dtype bfloat16"
    )


def _is_finite(tensor: torch.Tensor) -> bool:
    # torch has no `isfinite` for 8-bit floats.
    numbers = tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor
    return bool(numbers.isfinite().all())


@contextmanager
def refusing(model: nn.Module, doing: str) -> Iterator[None]:
    """Convert any exception in the block to a ModelError of one line. Logs the traceback at debug level.

    Args:
        model: loaded model.
        doing: action within the block, as a noun phrase.

    Raises:
        ModelError: the action failed. llmfw's own errors pass unchanged.
    """
    try:
        yield
    except LLMFWError:
        raise
    except Exception as error:  # any architecture's own code runs here
        logger.debug("%s: %s failed", type(model).__name__, doing, exc_info=True)
        raise refused(model, f"{doing} failed: {explained(error)}") from error
