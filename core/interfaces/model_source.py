"""The interface of a model source: a plugin's model with a registered name."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec


class ModelSource(ABC):
    """A model that a plugin provides under a name, such as `demo`.

    llmfw treats any other name as a folder, or as a hub id that transformers resolves.

    Built without arguments; if it has options, with `options`, an instance of its `Options`.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o model.key=value`. A source with options overrides this."""

    tool_parser: str | None = None
    """Name of the tool parser for the model, used unless the user names one."""

    reasoning_parser: str | None = None
    """Name of the reasoning parser for the model, used unless the user names one."""

    @abstractmethod
    def folder(self) -> str:
        """Return the folder of config, weights (safetensors) and tokenizer, in the layout of transformers.

        The path is absolute, and the same each time. The config names an architecture, and the tokenizer an end token.
        """
