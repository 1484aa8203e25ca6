"""Chooses and builds the logits processors that `--logits-processors` names."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.interfaces.logits_processor import LogitsProcessor, ProcessorContext
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.choice import choose
from llmfw.core.plugin.option_keys import refuse_options_of_others
from llmfw.core.plugin.registry import Entry, Registry
from llmfw.core.step.processors.isolated_processor import ChosenProcessor, IsolatedProcessor

KIND = "logits_processor"


class ModelContext(ProcessorContext):
    """The model and the device of an engine.

    Args:
        config: settings that name the model.
        vocab_size: width of the logits.
        device: device of the logits.
    """

    def __init__(self, config: EngineConfig, vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self._config = config
        self._tokenizer: Tokenizer | None = None

    def token_bytes(self, token_id: int) -> bytes:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._config.model, self._config.load_format)
        return self._tokenizer.token_bytes(token_id)


def check_processors(config: EngineConfig, registry: Registry) -> None:
    """Check the processors and their options, without building them.

    Raises:
        ConfigError: a processor is unknown or named twice, or an option is wrong or for a processor that is not
            chosen.
        ComponentError: a processor cannot be imported.
    """
    entries = _chosen(config, registry)
    names = [name for entry in entries for name in (entry.name, entry.full_name)]
    refuse_options_of_others(KIND, names, config.options, "--logits-processors NAME,NAME")
    for entry in entries:
        entry.build_options(config.options)


def build_processors(
    config: EngineConfig, registry: Registry, vocab_size: int, device: torch.device
) -> list[IsolatedProcessor]:
    """Build the processors, in the order in which the config names them.

    Raises:
        ConfigError: as in `check_processors`; or a processor does not work with the model.
        ComponentError: a processor cannot be imported or built.
    """
    context = ModelContext(config, vocab_size, device)
    found, declared = [], registry.request_fields()
    for entry in _chosen(config, registry):
        component: type[LogitsProcessor] = entry.load()
        built = entry.build(component, context, entry.build_options(config.options))
        calls = registry.ledger.of(entry)
        found.append(IsolatedProcessor(ChosenProcessor(entry, built), calls, declared))
    return found


def _chosen(config: EngineConfig, registry: Registry) -> Sequence[Entry]:
    return choose(registry, KIND, config.logits_processors).entries
