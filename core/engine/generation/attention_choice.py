"""Chooses the attention backends that serve a model: one for single tokens, and one for prompts, often the same."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import torch

from llmfw.core.base.config import EngineConfig, OptionValue
from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.interfaces.attention import AttentionBackend
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.attention.split_attention import SplitAttention
from llmfw.core.model.models import LoadedModel
from llmfw.core.plugin.choice import Choice, Rejection, choose
from llmfw.core.plugin.defaults import name_of
from llmfw.core.plugin.option_keys import options_of
from llmfw.core.plugin.registry import Entry, Registry

from .chosen_attention import ChosenAttention

logger = logging.getLogger(__name__)

KIND = "attention"

Part = Literal["decode", "prefill"]


def check_attention(config: EngineConfig, registry: Registry) -> None:
    """Check `--attention`, `--prefill-attention` and their options before the model is loaded, which may take
    minutes.

    Raises:
        ConfigError: a named backend or an option does not exist. With "auto": every backend that can be
            imported lacks an option.
        ComponentError: a named backend cannot be imported, or lacks a requirement.
    """
    settings = (config.attention, config.prefill_attention)
    named = [registry.find(KIND, name) for name in dict.fromkeys(settings) if name not in (None, "auto")]
    for entry in named:
        entry.build_options(
            _own_options(entry, registry.entries(KIND) if "auto" in settings else named, config.options)
        )
    if not named and options_of(KIND, (), config.options):
        _check_options_of_any(registry.entries(KIND), config.options)


def _check_options_of_any(entries: Sequence[Entry], options: Mapping[str, OptionValue]) -> None:
    """Raise ConfigError if no backend has these options, alone or together with another one."""
    refusals = []
    for entry in entries:
        try:
            entry.build_options(_own_options(entry, entries, options))
        except ComponentError:  # `choose_attention` skips this backend, and reports the error as the reason
            continue
        except ConfigError as error:
            refusals.append(error)
        else:
            return
    if refusals:
        raise ConfigError("; ".join(str(each) for each in refusals))


def choose_attention(
    config: EngineConfig, registry: Registry, model: LoadedModel, device: torch.device, storage: KVStorage
) -> ChosenAttention:
    """Build the requested attention backends, or the best that can serve the model.

    Raises:
        ConfigError: an option does not exist.
        ComponentError: a requested backend cannot serve the model, or none can; the message gives the reasons.
    """
    return _Chooser(config, registry, model, device, storage).choose()


class _Chooser:
    """Tries attention backends until there is one for each part of a step.

    Args: see `choose_attention`.
    """

    def __init__(
        self,
        config: EngineConfig,
        registry: Registry,
        model: LoadedModel,
        device: torch.device,
        storage: KVStorage,
    ) -> None:
        self._config = config
        self._registry = registry
        self._model = model
        self._device = device
        self._storage = storage
        self._rejections: dict[Entry, Rejection] = {}

    def choose(self) -> ChosenAttention:
        """Return the backends. Logs their names, and why better ones were passed over."""
        setting = self._config.prefill_attention
        if setting is None and self._config.attention == "auto":
            setting = "auto"
        if setting is None:
            entry, backend = self._whole(self._config.attention)
            chosen = self._chosen(entry, backend)
        elif setting == "auto":
            chosen = self._with_best_prefill(*self._whole(self._config.attention))
        else:
            chosen = self._with_named_prefill(self._registry.find(KIND, setting))
        chosen.decode.build_options(_own_options(chosen.decode, [chosen.prefill], self._config.options))
        self._log(chosen)
        return chosen

    def _whole(self, setting: str) -> tuple[Entry, AttentionBackend]:
        """Return the first backend of a setting that can serve whole steps, and its entry."""
        choice = self._choice(setting)
        for entry in choice.entries:
            found = self._attempt(choice, entry, None, self._better_for_prompts(entry))
            if found is not None:
                return entry, found
        raise self._none_can_serve(choice.entries)

    def _with_best_prefill(self, entry: Entry, backend: AttentionBackend) -> ChosenAttention:
        """Return a backend for single tokens together with the best one for prompts, which may be the same."""
        choice = self._choice("auto")
        candidates = self._better_for_prompts(entry)
        for better in candidates:
            if better in self._rejections:
                continue
            found = self._attempt(choice, better, "prefill", [entry, *candidates])
            if found is not None:
                return self._chosen(entry, backend, better, found)
        return self._chosen(entry, backend)

    def _with_named_prefill(self, prefill: Entry) -> ChosenAttention:
        """Return the requested backend for prompts, together with the requested or best one for single tokens."""
        choice = self._choice(self._config.attention)
        for entry in choice.entries:
            part: Part | None = None if entry == prefill else "decode"
            found = self._attempt(choice, entry, part, [prefill])
            if found is None:
                continue
            if entry == prefill:
                return self._chosen(entry, found)
            named = Choice(is_auto=False, entries=(prefill,))
            if (prompts := self._attempt(named, prefill, "prefill", [entry])) is None:
                raise self._none_can_serve([prefill])
            return self._chosen(entry, found, prefill, prompts)
        raise self._none_can_serve(choice.entries)

    def _choice(self, setting: str) -> Choice:
        return choose(self._registry, KIND, setting, self._device.type)

    def _better_for_prompts(self, entry: Entry) -> list[Entry]:
        """Return the backends that "auto" prefers for prompts to a backend, the best first."""
        if "auto" not in (self._config.attention, self._config.prefill_attention):
            return []
        rank = _prefill_rank(entry)
        better = [other for other in self._registry.entries(KIND) if _prefill_rank(other) > rank]
        return sorted(better, key=_prefill_rank, reverse=True)

    def _attempt(
        self, choice: Choice, entry: Entry, part: Part | None, others: Sequence[Entry]
    ) -> AttentionBackend | None:
        """Return a backend, or None if it cannot be used; the reason is kept."""
        found = choice.attempt(entry, partial(self._build, entry, part, others))
        if isinstance(found, Rejection):
            self._rejections[entry] = found
            return None
        return found

    def _build(
        self, entry: Entry, part: Part | None, others: Sequence[Entry], backend: type[AttentionBackend]
    ) -> AttentionBackend | str:
        """Build a backend of a class, or return the reason why the class cannot serve the model.

        Args:
            part: the part of each step that the backend is for; None: all of it.
            others: backends that an option may be meant for, if this one does not have it.

        Raises:
            ConfigError: an option does not exist.
            ComponentError: the backend cannot be built, for example because its kernels do not load.
        """
        model, storage = self._model, self._storage
        reason = backend.unsupported(model.layers, str(self._device), model.dtype)
        if reason is None and storage.stored_as != model.dtype:
            reason = backend.storage_unsupported(str(self._device), model.dtype, storage.stored_as)
        if reason is not None:
            return reason
        options = entry.build_options(_own_options(entry, others, self._config.options))
        build = backend if part is None else partial(backend.for_part, part)
        return entry.build(build, model.layers, storage, options)

    def _chosen(
        self,
        decode: Entry,
        backend: AttentionBackend,
        prefill: Entry | None = None,
        prompts: AttentionBackend | None = None,
    ) -> ChosenAttention:
        name = name_of(self._registry, decode)
        if prefill is None or prompts is None:
            return ChosenAttention(name, backend, decode, decode)
        name += f", prompts: {name_of(self._registry, prefill)}"
        return ChosenAttention(name, SplitAttention(backend, prompts), decode, prefill)

    def _log(self, chosen: ChosenAttention) -> None:
        reasons, elsewhere = self._reasons(list(self._rejections))
        logger.info("Attention backend: %s%s", chosen.name, f" ({'; '.join(reasons)})" if reasons else "")
        if elsewhere:
            logger.debug(
                "Attention backends for other devices than %s: %s", self._device.type, ", ".join(elsewhere)
            )

    def _reasons(self, entries: Sequence[Entry]) -> tuple[list[str], list[str]]:
        """Return why backends cannot be used, and which are for other devices."""
        reasons, elsewhere = [], []
        for entry in entries:
            if rejection := self._rejections.get(entry):
                if rejection.is_for_other_device:
                    elsewhere.append(f"{entry.name} ({rejection.reason})")
                else:
                    reasons.append(f"{entry.name}: {rejection.reason}")
        return reasons, elsewhere

    def _none_can_serve(self, entries: Sequence[Entry]) -> ComponentError:
        reasons, elsewhere = self._reasons(entries)
        listed = "; ".join(reasons + elsewhere) or "no plugin brings one"
        if self._config.kv_cache_dtype != "auto":
            listed += f" (--kv-cache-dtype is {self._config.kv_cache_dtype})"
        return ComponentError(
            f"no attention backend can serve {self._model.architecture} on {self._device}: {listed}"
        )


def _prefill_rank(entry: Entry) -> int:
    return entry.rank if entry.prefill_rank is None else entry.prefill_rank


def _own_options(
    entry: Entry, others: Sequence[Entry], options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options without those that only another backend has."""
    foreign = [
        full
        for full in options
        for kind, _, key in [full.partition(".")]
        if kind == KIND and key not in entry.option_names()
        if any(key in other.option_names() for other in others)
    ]
    return {full: value for full, value in options.items() if full not in foreign}
