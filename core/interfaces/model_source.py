"""The interface of a model source, which provides a model under a registered name."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec


class ModelSource(ABC):
    """A model that a plugin provides under a name, such as `demo`.

    If no plugin registers a name, llmfw takes the name as a folder, or as a hub id that transformers
    resolves.

    The constructor gets no arguments, except `options`, an instance of the source's `Options`, if the source
    has options.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o model.key=value`. A source with options overrides this."""

    tool_parser: str | None = None
    """Name of the tool parser for the model, used unless the user names one."""

    reasoning_parser: str | None = None
    """Name of the reasoning parser for the model, used unless the user names one."""

    @abstractmethod
    def folder(self) -> str:
        """Return the path of the model's folder.

        The folder holds config, weights (safetensors) and tokenizer, in the layout of transformers. The
        config must name an architecture, and the tokenizer must name an end-of-sequence token. The path must
        be absolute, and the same in each call.
        """
