"""Converts Ollama's options to OpenAI's fields."""

from __future__ import annotations

from typing import Any

from llmfw.core import RequestError

from .bodies import Options

NAMES = {
    "max_tokens": "options.num_predict",
    "repetition_penalty": "options.repeat_penalty",
    **{
        name: f"options.{name}"
        for name in (
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "presence_penalty",
            "frequency_penalty",
            "seed",
            "stop",
        )
    },
}
"""OpenAI's field → Ollama's."""

_PENALTIES = {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""Penalty → the value that turns it off."""

_OFF = {"mirostat": 0, "tfs_z": 1, "typical_p": 1}
"""Option that this server does not have → the value that turns it off."""

NO_LIMITS = (-1, -2)
"""Values of `num_predict` that set no limit, so that an answer may fill the context."""

RANDOM_SEED = -1


def sampling_of(options: Options | None, ignored: list[str]) -> dict[str, Any]:
    """Return the fields of OpenAI's request that Ollama's options set.

    Args:
        ignored: list to which the names of options without effect are added.

    Raises:
        RequestError: an option has a value that this server does not support.
    """
    if options is None:
        return {}
    for name, off in _OFF.items():
        value = getattr(options, name)
        if value not in (None, off):
            _refuse(name, value, f"this server does not sample in this way; leave it out, or send {off}")
    fields = {
        "max_tokens": _max_tokens(options.num_predict),
        "temperature": options.temperature,
        "top_k": None if options.top_k is None else max(0, options.top_k),
        "top_p": options.top_p,
        "min_p": options.min_p,
        "repetition_penalty": options.repeat_penalty,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "seed": None if options.seed == RANDOM_SEED else options.seed,
        "stop": options.stop,
    }
    _check_penalties(options, fields, ignored)
    return {name: value for name, value in fields.items() if value is not None}


def _max_tokens(num_predict: int | None) -> int | None:
    if num_predict is None or num_predict in NO_LIMITS:
        return None
    if num_predict < 1:
        _refuse("num_predict", num_predict, "it must be 1 or more, or -1 for no limit but the context")
    return num_predict


def _check_penalties(options: Options, fields: dict[str, Any], ignored: list[str]) -> None:
    """Apply, ignore or refuse the options that only tune the penalties.

    llmfw's penalties always count the whole text. So if a penalty is used, an option that limits the counted
    text is refused. If the option limits the counted text to zero tokens, the penalties are dropped.
    """
    last = options.repeat_last_n
    used = [name for name, off in _PENALTIES.items() if fields[name] not in (None, off)]
    if last == 0:  # in this case, Ollama counts no tokens, so penalties have no effect
        for name in used:
            fields[name] = None
            ignored.append(NAMES[name])
    elif used and last not in (None, -1):
        _refuse("repeat_last_n", last, "penalties count the whole text; leave it out, or send -1")
    elif last is not None and not used:
        ignored.append("options.repeat_last_n")
    if options.penalize_newline is False:
        if used and last != 0:
            _refuse("penalize_newline", "false", "penalties count line breaks, too; leave it out")
        ignored.append("options.penalize_newline")


def _refuse(name: str, value: object, advice: str) -> None:
    param = f"options.{name}"
    raise RequestError(f"{param} is {value}; {advice}", param=param, code="unsupported_parameter")
