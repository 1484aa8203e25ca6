"""Finds whether the modules of a quantization scheme made a batch of an encoder fail."""

from __future__ import annotations

import torch

from llmfw.core.model.device.devices import raise_if_lost
from llmfw.core.plugin.blame import component_at_fault
from llmfw.core.plugin.calls import ComponentCalls


class SchemeFaults:
    """Blames the quantization scheme of an encoder for failures of its modules.

    Args:
        calls: record of the scheme's failures.
        device: device on which batches are computed.
    """

    def __init__(self, calls: ComponentCalls, device: torch.device) -> None:
        self._calls = calls
        self._device = device

    def blame(self, error: Exception) -> Exception:
        """Log an exception from a batch; return the error that ends the batch's requests.

        Raises:
            Exception: the exception of the batch, if no code of the scheme was running, or if the device cannot
                continue.
        """
        if component_at_fault(error, [self._calls.entry]) is None:
            raise error
        raise_if_lost(self._device, error)
        return self._calls.failed(error, "a step")
