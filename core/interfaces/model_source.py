"""The interface of a model source: a plugin's model that has a name of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec


class ModelSource(ABC):
    """A model that a plugin brings under a name of its own, such as `demo`.

    Any other name is taken as a folder, or as a hub id that transformers resolves.

    Built without arguments, unless it has options: then with `options`, an instance of its `Options`.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o model.key=value`. A source with options overrides this."""

    tool_parser: str | None = None
    """Name of the tool parser that fits the model, used unless the user names one."""

    reasoning_parser: str | None = None
    """Name of the reasoning parser that fits the model, used unless the user names one."""

    @abstractmethod
    def folder(self) -> str:
        """Return the folder of config, weights (safetensors) and tokenizer, in the layout of transformers.

        An absolute path, the same each time. The config names an architecture, the tokenizer a token that ends outputs.
        """
