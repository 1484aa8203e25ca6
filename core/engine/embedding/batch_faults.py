"""Finds the cause of a failed batch of an encoder, and whether the engine can continue."""

from __future__ import annotations

import logging

import torch

from llmfw.core.base.described import described
from llmfw.core.base.disarm import readable
from llmfw.core.base.errors import EngineError
from llmfw.core.model.device.devices import raise_if_lost
from llmfw.core.plugin.blame import component_at_fault
from llmfw.core.plugin.calls import ComponentCalls

logger = logging.getLogger(__name__)


class BatchFaults:
    """Blames the quantization scheme of an encoder for failures of its modules.

    Args:
        device: device on which batches are computed.
        scheme: record of the scheme's failures; None: the encoder is not quantized.
    """

    def __init__(self, device: torch.device, scheme: ComponentCalls | None = None) -> None:
        self._device = device
        self._scheme = scheme

    def check_device(self, error: Exception) -> None:
        """Raise a batch's exception again if the device can no longer compute."""
        raise_if_lost(self._device, error)

    def blame(self, error: Exception) -> Exception:
        """Log an exception from a batch; return the error that ends the batch's requests."""
        if self._scheme is not None and component_at_fault(error, [self._scheme.entry]) is not None:
            return self._scheme.failed(error, "a step")
        logger.error("a batch failed: %s", described(error), exc_info=readable(error))
        return EngineError("the model failed on this request; the server's log says why")
