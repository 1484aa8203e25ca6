"""Chooses the grammar backend for `--grammar`.

The API, which checks grammars, and the engine both use this module, so that they choose the same backend.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from llmfw.core.base.errors import ComponentError, RequestError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.grammar import GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer

from .choice import Choice, Rejection, choose
from .registry import Entry, Registry

logger = logging.getLogger(__name__)


def choose_grammar_backend(name: str, registry: Registry) -> Entry | None:
    """Return the entry of the grammar backend to use, or None if there is none.

    Args:
        name: name of a backend; "auto": the backend with the highest rank whose libraries are installed;
            "none": no backend.

    Raises:
        UnknownComponentError: no plugin registers the name.
        ConfigError: several plugins register the name.
        ComponentError: the named backend lacks a module.
    """
    choice = choose(registry, "grammar", name)
    ready = [entry for entry in choice.entries if not entry.missing()]
    if choice.entries and not choice.is_auto and not ready:
        entry = choice.entries[0]
        raise ComponentError(f"{entry} {entry.lacking()}")
    if len(ready) < 2:  # a single backend is loaded later, because loading takes a while
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
        ConfigError: an option does not exist, or a value has the wrong type.
        ComponentError: the backend cannot be imported, or cannot be built for this tokenizer; the message
            gives the reason.
        RequestError: the backend says that no output with this tokenizer can be constrained.
    """
    try:
        backend: GrammarBackend = entry.build(
            entry.load(), tokenizer, vocab_size, **entry.built_with(options)
        )
    except ComponentError as error:
        if isinstance(error.__cause__, RequestError):
            raise error.__cause__ from None
        raise
    return backend


def _loads(choice: Choice, entry: Entry) -> bool:
    found = choice.attempt(entry, lambda backend: backend)
    if isinstance(found, Rejection):
        logger.warning("Grammar backend %s is passed over: %s", entry.name, found.reason)
    return not isinstance(found, Rejection)
