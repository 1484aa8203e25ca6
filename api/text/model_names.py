"""The names by which clients may call the served model and its adapters."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable

from llmfw.core.base.adapter_name import split_adapters
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import AdapterInfo
from llmfw.core.base.errors import ConfigError, ModelNotFoundError

from .served_name import BaseNames

MAX_LISTED = 20
"""Maximum number of names in an error message."""


class ModelNames:
    """The served model and the loaded adapters, each of which is a model for clients.

    An adapter's name may stand after the model's: "base:adapter".

    Args:
        served_name: name of the model for clients.
        source: the model's folder, or its hub id.
        adapters: the adapters that are loaded.
        clock: monotonic clock in seconds.

    Attributes:
        search: loads the adapter of this name for this tenant, if it can be found; None: adapters are loaded by
            administrators alone.
    """

    def __init__(
        self,
        served_name: str,
        source: str,
        adapters: Iterable[AdapterInfo] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.served_name = served_name
        self.search: Callable[[str, str], Awaitable[None]] | None = None
        self._base = BaseNames(served_name, source)
        self._clock = clock
        self._adapters: dict[str, AdapterInfo] = {}
        self._used_at: dict[str, float] = {}
        self.update(adapters)

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters that take requests, ascending."""
        return tuple(sorted(self._adapters))

    @property
    def shown(self) -> str:
        """The names of the model and its adapters, for messages; of many names, the first."""
        names = (self.served_name, *self.adapters)
        rest = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
        return ", ".join(map(repr, names[:MAX_LISTED])) + rest

    def update(self, adapters: Iterable[AdapterInfo]) -> None:
        """Take over the engine's list of adapters."""
        self._adapters = {each.name: each for each in adapters if each.state == "ready"}
        self._used_at = {name: when for name, when in self._used_at.items() if name in self._adapters}

    def is_base(self, model: str) -> bool:
        """Return whether a name means the model without an adapter."""
        return model in self._base

    def __contains__(self, model: str) -> bool:
        """Return whether clients may use a name."""
        return self.is_base(model) or self._adapter_in(model) is not None

    async def find(self, model: str | None, tenant: str) -> None:
        """Load the adapter that a request's model means, if it is not loaded and can be found.

        Args:
            tenant: tenant of the request; "": it has none.

        Raises:
            LLMFWError: as in `AdapterSearch.find`.
        """
        if self.search is not None and model is not None and model not in self:
            await self.search(self._without_base(model), tenant)

    def used_at(self, adapter: str) -> float:
        """Return the time when a request last named an adapter; 0.0: none has."""
        return self._used_at.get(adapter, 0.0)

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
            raise ModelNotFoundError(f"there is no model {model!r:.200}; this server has {self.shown}")
        self._used_at[adapter] = self._clock()
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

    def _without_base(self, model: str) -> str:
        """Return the part after "base:" in a name that starts with a name of the model; else the whole name."""
        for place in (i for i, letter in enumerate(model) if letter == ":"):
            if self.is_base(model[:place]):
                return model[place + 1 :]
        return model


def check_adapter_names(engine: EngineConfig, served_name: str) -> None:
    """Raise ConfigError if an adapter of the settings has a name of the model, which hides the adapter."""
    names_of_model = BaseNames(served_name, engine.model)
    for name, _ in split_adapters(engine.adapters):
        if name in names_of_model:
            raise ConfigError(
                f"--adapter gives an adapter the name {name!r:.100}, which is the model's; give the adapter another name, "
                "or the model another --served-model-name"
            )
