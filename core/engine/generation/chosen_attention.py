"""The attention backends that serve a model: one, or several that share its steps."""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.model.attention.split_attention import SplitAttention
from llmfw.core.plugin.registry import Entry


@dataclass(frozen=True, slots=True)
class ChosenAttention:
    """The attention backends in use.

    Attributes:
        name: name for display: "NAME", or "NAME, prompts: NAME" if there are two backends.
        backend: the backend that the executor uses.
        decode: registry entry of the backend for single tokens.
        prefill: registry entry of the backend for prompts; equal to `decode` if there is one backend.
        ahead: registry entry of the backend for prompts with images that need one that looks ahead; None:
            there are no such images, or `prefill` looks ahead.
    """

    name: str
    backend: AttentionBackend
    decode: Entry
    prefill: Entry
    ahead: Entry | None = None

    @property
    def suspect(self) -> Entry:
        """Entry of the backend that most likely caused an error of unknown cause."""
        backend = self.backend
        if isinstance(backend, SplitAttention):
            if backend.suspect is backend.ahead and self.ahead is not None:
                return self.ahead
            if backend.suspect is backend.prefill:
                return self.prefill
        return self.decode
