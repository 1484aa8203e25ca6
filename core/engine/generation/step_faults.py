"""Finds which component made a step fail, and whether the engine can continue.

The attention backend, the token sampler, and the modules that passes, quantization schemes and model adapters
have inserted, belong to plugins and run inside transformers' own code. The traceback shows whose code raised
the exception. llmfw's own code raises WrongReturnError, so the traceback does not show the component. Unless
the error names a component, the attention backend returned a wrong output. Independent of sequences.
"""

from __future__ import annotations

import logging

import torch

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.described import described
from llmfw.core.base.disarm import readable
from llmfw.core.base.errors import EngineError, RankError
from llmfw.core.model.device.devices import raise_if_lost
from llmfw.core.plugin.blame import component_at_fault
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.plugin.returned import WrongReturnError

from .chosen_attention import ChosenAttention

logger = logging.getLogger(__name__)

KINDS = ("attention", "module_pass", "quantization_scheme", "model_adapter", "token_sampler")


class StepFaults:
    """Finds the component that made a step fail.

    Args:
        registry: registry of the components.
        device: device on which steps run.
        attention: the attention backends in use.
        token_sampler: the token sampler in use.
    """

    def __init__(
        self, registry: Registry, device: torch.device, attention: ChosenAttention, token_sampler: Entry
    ) -> None:
        self._token_sampler = token_sampler
        self._registry = registry
        self._device = device
        self._attention = attention

    def blame(self, error: Exception) -> Exception:
        """Log an exception from a step; return the error that ends the step's requests.

        Raises:
            Exception: the exception of the step, if the device or a rank cannot continue.
        """
        if isinstance(error, RankError):
            raise error
        raise_if_lost(self._device, error)
        entry = self._culprit(error)
        if entry is not None:
            return self._registry.ledger.of(entry).failed(error, "a step")
        logger.error("a step failed: %s", described(error), exc_info=readable(error))
        return EngineError("the step of this request failed; the server's log says why")

    def describe(self, error: Exception) -> str:
        """Return an exception's class and message, and which component's code was running, for the log."""
        entry = self._culprit(error)
        return described(error) if entry is None else f"{entry.spoken} failed: {described(error)}"

    def users(self) -> str:
        """Return a description, for the log, of the components whose code runs in the engine's thread.

        Names only components of other packages than llmfw, if there are any.
        """
        found = {self._attention.decode, self._attention.prefill, self._token_sampler}
        found |= {
            self._registry.find(use.kind, f"{use.plugin}/{use.name}") for use in self._registry.ledger.uses()
        }
        foreign = sorted(entry.spoken for entry in found if entry.distribution != DISTRIBUTION)
        return " or ".join(foreign or sorted(entry.spoken for entry in found))

    def _culprit(self, error: Exception) -> Entry | None:
        """Return the component whose code was running, the innermost if several; None if there was none."""
        if isinstance(error, WrongReturnError):
            return error.entry or self._attention.suspect
        components = [entry for kind in KINDS for entry in self._registry.entries(kind)]
        return component_at_fault(error, components)
