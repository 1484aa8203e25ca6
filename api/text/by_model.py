"""Finds the object that serves a model, by the model that a request names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from llmfw.core.base.errors import ModelNotFoundError

from .model_names import ModelNames

ServedT_co = TypeVar("ServedT_co", covariant=True)
OtherT = TypeVar("OtherT")


class ByModel(Generic[ServedT_co]):
    """One object for each served model, such as its chat service.

    Args:
        entries: names and object of each model, at least one. Requests that name no model are for the first.
    """

    def __init__(self, entries: Sequence[tuple[ModelNames, ServedT_co]]) -> None:
        self._entries = list(entries)

    @property
    def first(self) -> ServedT_co:
        """The object of the first model."""
        return self._entries[0][1]

    @property
    def served_names(self) -> tuple[str, ...]:
        """Names of the models, without adapters."""
        return tuple(names.served_name for names, _ in self._entries)

    def __iter__(self) -> Iterator[ServedT_co]:
        return (each for _, each in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, model: str) -> bool:
        """Return whether clients may use a name."""
        return any(model in names for names, _ in self._entries)

    def of(self, model: str | None) -> ServedT_co:
        """Return the object of the model that a request names; None: of the first model.

        A name that no model has may be an adapter that is not loaded. So it is left to the model whose adapters
        can be searched.

        Raises:
            ModelNotFoundError: there is no such model.
        """
        return self._entry(model)[1]

    def names_of(self, model: str | None) -> ModelNames:
        """Return the names of the model that a request names; raises as `of` does."""
        return self._entry(model)[0]

    def map(self, function: Callable[[ServedT_co], OtherT]) -> ByModel[OtherT]:
        """Return what a function returns for the object of each model."""
        return ByModel([(names, function(each)) for names, each in self._entries])

    def _entry(self, model: str | None) -> tuple[ModelNames, ServedT_co]:
        if model is None:
            return self._entries[0]
        for entry in self._entries:
            if model in entry[0]:
                return entry
        for entry in self._entries:
            if entry[0].search is not None:  # an adapter that is not loaded may have this name
                return entry
        known = ", ".join(names.shown for names, _ in self._entries)
        raise ModelNotFoundError(f"there is no model {model!r:.200}; this server has {known}")
