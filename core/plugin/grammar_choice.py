"""Chooses the grammar backend for a setting: the same one in the API, which checks grammars, and in the engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from llmfw.core.base.config import OptionValue
from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.grammar import GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer

from .choice import Choice, Rejection, choose
from .registry import Entry, Registry

logger = logging.getLogger(__name__)


def choose_grammar_backend(name: str, registry: Registry) -> Entry | None:
    """Return the grammar backend with this name.

    Args:
        name: name of a backend; "auto": the best one whose libraries are installed, None if there is none; "none":
            None.

    Raises:
        UnknownComponentError: no plugin registers the name.
        ConfigError: several plugins do.
        ComponentError: the named backend lacks a module.
    """
    choice = choose(registry, "grammar", name)
    ready = [entry for entry in choice.entries if not entry.missing()]
    if choice.entries and not choice.is_auto and not ready:
        entry = choice.entries[0]
        raise ComponentError(f"{entry} {entry.lacking()}")
    if len(ready) < 2:  # loading takes a while, and waits for the first grammar
        return ready[0] if ready else None
    return next((entry for entry in ready if _loads(choice, entry)), None)


def build_grammar_backend(
    entry: Entry, tokenizer: Tokenizer, vocab_size: int, options: Mapping[str, OptionValue]
) -> GrammarBackend:
    """Build a grammar backend.

    Args:
        vocab_size: width of the model's logits.
        options: "kind.key" → value.

    Raises:
        ConfigError: an option is not one of the backend's, or of the wrong type.
        ComponentError: it cannot be imported, or not be built for this tokenizer; with the reason.
    """
    backend: GrammarBackend = entry.build(entry.load(), tokenizer, vocab_size, **entry.built_with(options))
    return backend


def _loads(choice: Choice, entry: Entry) -> bool:
    found = choice.attempt(entry, lambda backend: backend)
    if isinstance(found, Rejection):
        logger.warning("Grammar backend %s is passed over: %s", entry.name, found.reason)
    return not isinstance(found, Rejection)
