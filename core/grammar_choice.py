"""Which grammar backend a setting stands for: the same one for the API, which checks grammars, and the engine."""

from __future__ import annotations

from .errors import PartError
from .grammar import GrammarBackend
from .registry import Entry, Registry
from .tokenizer import Tokenizer


def choose_grammar_backend(name: str, registry: Registry) -> Entry | None:
    """Return the grammar backend of a name.

    Args:
        name: of a backend; "auto": the best one whose libraries are installed, None if there is none; "none": None.

    Raises:
        UnknownPartError: no plugin registers the name.
        ConfigError: several plugins do.
        PartError: the named backend lacks a module.
    """
    if name == "none":
        return None
    if name == "auto":
        return next((entry for entry in registry.entries("grammar") if not entry.missing()), None)
    entry = registry.find("grammar", name)
    if missing := entry.missing():
        raise PartError(f"{entry} needs {', '.join(missing)}, which is not installed")
    return entry


def build_grammar_backend(entry: Entry, tokenizer: Tokenizer, vocab_size: int) -> GrammarBackend:
    """Return a grammar backend.

    Args:
        vocab_size: width of the model's logits.

    Raises:
        PartError: it cannot be imported, or not be built for this tokenizer; with the reason.
    """
    made = entry.load()
    try:
        backend: GrammarBackend = made(tokenizer, vocab_size)
    except PartError:
        raise
    except Exception as error:  # whatever a foreign library raises is the cause to report
        raise PartError(f"{entry} cannot be built: {type(error).__name__}: {error}") from error
    return backend
