"""Finds the attention backends to use: one for single tokens and one for prompts, often the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, Protocol, TypeVar

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ComponentError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.plugin.choice import Choice, Rejection, choose
from llmfw.core.plugin.registry import Entry, Registry

KIND = "attention"

Part = Literal["decode", "prefill"]

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Try(Protocol[ResultT_co]):
    """Function that tries a backend."""

    def __call__(
        self,
        entry: Entry,
        part: Part | None,
        options: AttentionBackend.Options,
        backend: type[AttentionBackend],
    ) -> ResultT_co | str:
        """Return the result, or the reason why the backend cannot be used.

        Args:
            part: the part of each step that the backend is for; None: whole steps.
        """


@dataclass(frozen=True, slots=True)
class Found(Generic[ResultT]):
    """The backends that can be used, and the results of trying them.

    Attributes:
        decode: backend for single tokens.
        prefill: backend for prompts; equal to `decode` if there is one backend.
        results: result of `decode`, and result of `prefill` if it is another backend.
    """

    decode: Entry
    prefill: Entry
    results: tuple[ResultT, ...]


class AttentionSearch(Generic[ResultT]):
    """Tries attention backends until there is one for each part of a step.

    Args:
        config, registry: settings and components.
        device: type of the device.
        unsupported: function that returns the reason why a class of backends cannot serve the model; None if it can.
        attempt: function that tries a backend that supports the model.

    Attributes:
        rejections: reasons why backends were rejected, in the order of the tries.
    """

    def __init__(
        self,
        config: EngineConfig,
        registry: Registry,
        device: str,
        unsupported: Callable[[type[AttentionBackend]], str | None],
        attempt: Try[ResultT],
    ) -> None:
        self._config = config
        self._registry = registry
        self._device = device
        self._unsupported = unsupported
        self._attempt = attempt
        self.rejections: dict[Entry, Rejection] = {}

    def find(self) -> Found[ResultT] | None:
        """Return the requested or best usable backends; None if a part of a step has no usable backend.

        Raises:
            ConfigError: an option does not exist.
        """
        setting = self._config.prefill_attention
        if setting is None and self._config.attention == "auto":
            setting = "auto"
        if setting in (None, "auto"):
            found = self._whole()
            if found is not None and setting == "auto":
                found = self._with_best_prefill(found)
        else:
            found = self._with_named_prefill(self._registry.find(KIND, setting))
        if found is not None:
            found.decode.build_options(own_options(found.decode, [found.prefill], self._config.options))
        return found

    def _whole(self) -> Found[ResultT] | None:
        """Return the first backend that can compute whole steps."""
        choice = self._choice(self._config.attention)
        for entry in choice.entries:
            result = self._tried(choice, entry, None, self._better_for_prompts(entry))
            if result is not None:
                return Found(entry, entry, (result,))
        return None

    def _with_best_prefill(self, found: Found[ResultT]) -> Found[ResultT]:
        """Return a backend, together with a better backend for prompts if there is one."""
        choice, candidates = self._choice("auto"), self._better_for_prompts(found.decode)
        for entry in candidates:
            if entry in self.rejections:
                continue
            result = self._tried(choice, entry, "prefill", [found.decode, *candidates])
            if result is not None:
                return Found(found.decode, entry, (*found.results, result))
        return found

    def _with_named_prefill(self, prefill: Entry) -> Found[ResultT] | None:
        """Return the requested backend for prompts, together with the requested or best one for single tokens."""
        choice = self._choice(self._config.attention)
        for entry in choice.entries:
            result = self._tried(choice, entry, None if entry == prefill else "decode", [prefill])
            if result is None:
                continue
            if entry == prefill:
                return Found(entry, entry, (result,))
            named = Choice(is_auto=False, entries=(prefill,))
            prompts = self._tried(named, prefill, "prefill", [entry])
            return None if prompts is None else Found(entry, prefill, (result, prompts))
        return None

    def _choice(self, setting: str) -> Choice:
        return choose(self._registry, KIND, setting, self._device)

    def _better_for_prompts(self, entry: Entry) -> list[Entry]:
        """Return the backends that "auto" prefers to this backend for prompts, the best first."""
        if self._config.prefill_attention is None and self._config.attention != "auto":
            return []
        rank = _prefill_rank(entry)
        better = [other for other in self._registry.entries(KIND) if _prefill_rank(other) > rank]
        return sorted(better, key=_prefill_rank, reverse=True)

    def _tried(
        self, choice: Choice, entry: Entry, part: Part | None, others: Sequence[Entry]
    ) -> ResultT | None:
        """Try a backend; return the result. If it is unusable, return None, and keep the reason.

        Args:
            others: backends that may have the options that this backend lacks.
        """
        found = choice.attempt(entry, partial(self._try, entry, part, others))
        if isinstance(found, Rejection):
            self.rejections[entry] = found
            return None
        return found

    def _try(
        self, entry: Entry, part: Part | None, others: Sequence[Entry], backend: type[AttentionBackend]
    ) -> ResultT | str:
        if reason := self._unsupported(backend):
            return reason
        options = entry.build_options(own_options(entry, others, self._config.options))
        return self._attempt(entry, part, options, backend)


def _prefill_rank(entry: Entry) -> int:
    return entry.rank if entry.prefill_rank is None else entry.prefill_rank


def own_options(
    entry: Entry, others: Sequence[Entry], options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options, without the options that only other backends have."""
    foreign = [
        full
        for full in options
        for kind, _, key in [full.partition(".")]
        if kind == KIND and key not in _option_names(entry)
        if any(key in _option_names(other) for other in others)
    ]
    return {full: value for full, value in options.items() if full not in foreign}


def _option_names(entry: Entry) -> tuple[str, ...]:
    """Return the names of a backend's options; () if it cannot be imported."""
    try:
        backend: type[AttentionBackend] = entry.load()
    except ComponentError:
        return ()
    return backend.Options.__struct_encode_fields__
