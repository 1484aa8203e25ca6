"""The names by which clients may call the served model and its adapters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from llmfw.core.base.control import AdapterInfo
from llmfw.core.base.errors import ModelNotFoundError

from .served_name import is_name_of


class ModelNames:
    """The served model and the loaded adapters, each of which is a model for clients.

    An adapter's name may stand after the model's: "base:adapter".

    Args:
        served_name: name of the model for clients.
        source: the model's folder, or its hub id.
        adapters: the adapters that are loaded.
    """

    def __init__(self, served_name: str, source: str, adapters: Iterable[AdapterInfo] = ()) -> None:
        self.served_name = served_name
        self._source = source
        self._adapters: dict[str, AdapterInfo] = {}
        self.update(adapters)

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters that take requests, ascending."""
        return tuple(sorted(self._adapters))

    @property
    def shown(self) -> str:
        """The names of the model and its adapters, for messages."""
        return ", ".join(map(repr, (self.served_name, *self.adapters)))

    def update(self, adapters: Iterable[AdapterInfo]) -> None:
        """Take over the engine's list of adapters."""
        self._adapters = {each.name: each for each in adapters if each.state == "ready"}

    def is_base(self, model: str) -> bool:
        """Return whether a name means the model without an adapter."""
        return is_name_of(model, self.served_name, self._source)

    def __contains__(self, model: str) -> bool:
        """Return whether clients may use a name."""
        return self.is_base(model) or self._adapter_in(model) is not None

    def adapter_of(self, model: str | None) -> str:
        """Return the name of the adapter that a request's model means; "": the model without one.

        Args:
            model: the request's model; None: the served one.

        Raises:
            ModelNotFoundError: there is no such model.
        """
        if model is None or self.is_base(model):
            return ""
        adapter = self._adapter_in(model)
        if adapter is None:
            raise ModelNotFoundError(f"there is no model {model!r}; this server has {self.shown}")
        return adapter

    def digest(self, adapter: str) -> str | None:
        """Return the hash of an adapter's files; None if it takes no requests."""
        info = self._adapters.get(adapter)
        return info.digest if info else None

    def fingerprint(self, of_model: str, adapter: str) -> str:
        """Return the system fingerprint of replies: of the model, or of the model with an adapter's files."""
        info = self._adapters.get(adapter)
        if info is None:
            return of_model
        both = f"{of_model} {info.digest}".encode()
        return f"fp_{hashlib.sha256(both).hexdigest()[: len(of_model.removeprefix('fp_'))]}"

    def _adapter_in(self, model: str) -> str | None:
        """Return the adapter in "adapter" or "base:adapter"; None if there is none. Either name may have colons."""
        if model in self._adapters:
            return model
        for place in (i for i, letter in enumerate(model) if letter == ":"):
            base, adapter = model[:place], model[place + 1 :]
            if adapter in self._adapters and self.is_base(base):
                return adapter
        return None
