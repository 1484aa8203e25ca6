"""Checks the types of the arguments that a plugin's route passes to its services.

A wrong type is the plugin's fault, not the client's: it is a TypeError that names the argument and the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from llmfw.core.base.request import GrammarSpec, SamplingParams

PROMPT = "a str, or a sequence of token ids"


def check_prompt(name: str, value: object) -> None:
    """Raise TypeError unless a value is a text or a sequence of token ids."""
    if isinstance(value, str):
        return
    for i, each in enumerate(_items(name, value, PROMPT)):
        if type(each) is not int:
            raise _wrong(f"{name}[{i}]", each, "a token id, which is an int")


def check_prompts(name: str, values: object) -> None:
    """Raise TypeError unless a value is a sequence of texts, or of sequences of token ids."""
    for i, each in enumerate(_items(name, values, f"a sequence, each {PROMPT}")):
        check_prompt(f"{name}[{i}]", each)


def check_texts(name: str, values: object) -> None:
    """Raise TypeError unless a value is a sequence of texts. A single text is refused."""
    for i, each in enumerate(_items(name, values, "a sequence of str")):
        if not isinstance(each, str):
            raise _wrong(f"{name}[{i}]", each, "a str")


def check_texts_or_pairs(name: str, values: object) -> None:
    """Raise TypeError unless a value is a sequence of texts and pairs of texts."""
    for i, each in enumerate(_items(name, values, "a sequence of str, or of pairs of them")):
        if not isinstance(each, str):
            check_texts(f"{name}[{i}]", each)


def check_settings(
    sampling: object = None,
    logprobs: object = None,
    grammar: object = None,
    priority: object = 0,
    timeout_s: object = None,
) -> None:
    """Raise TypeError if a setting of a generation, or a member of a setting, has a wrong type."""
    if sampling is not None:
        if not isinstance(sampling, SamplingParams):
            raise _wrong("sampling", sampling, "a SamplingParams or None")
        try:
            msgspec.convert(msgspec.to_builtins(sampling), SamplingParams)
        except (msgspec.ValidationError, TypeError) as error:
            raise TypeError(f"sampling has a member of a wrong type: {error}") from None
    if grammar is not None and not isinstance(grammar, GrammarSpec):
        raise _wrong("grammar", grammar, "a GrammarSpec or None")
    if logprobs is not None and type(logprobs) is not int:
        raise _wrong("logprobs", logprobs, "an int or None")
    if type(priority) is not int:
        raise _wrong("priority", priority, "an int")
    if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float)):
        raise _wrong("timeout_s", timeout_s, "a number of seconds or None")


def _items(name: str, value: object, wanted: str) -> Sequence[Any]:
    """Return a value; raise TypeError unless it is a sequence other than text or bytes."""
    if isinstance(value, str | bytes | bytearray | memoryview) or not isinstance(value, Sequence):
        raise _wrong(name, value, wanted)
    return value


def _wrong(name: str, value: object, wanted: str) -> TypeError:
    return TypeError(f"{name} is {value!r:.80} ({type(value).__name__}); give {wanted}")
