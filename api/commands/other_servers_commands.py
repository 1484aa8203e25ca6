"""Commands of other servers, and what to use here, for users who come from these servers."""

from __future__ import annotations

from collections.abc import Iterator

_SERVE = "`llmfw serve MODEL`, then `llmfw chat`"
_ONE_MODEL = "a server has one model, which GET /v1/models names"
_CACHE = "the folder of the model, or the cache of the hub in HF_HOME, has the files"

# Program, commands (separated by spaces), what to use here.
_ROWS = (
    ("Ollama", "run start", _SERVE),
    ("Ollama", "list ls", "`llmfw models` lists what is downloaded"),
    ("Ollama", "ps show", _ONE_MODEL),
    ("Ollama", "rm cp push create", _CACHE),
    ("Ollama", "stop", "Ctrl-C or SIGTERM ends `llmfw serve`"),
    ("SGLang", "launch_server", "`llmfw serve MODEL`"),
    ("SGLang", "bench_serving", "`llmfw bench`"),
    ("vLLM", "run-batch", "`llmfw batch run`"),
)


def commands_of_others() -> Iterator[tuple[str, str]]:
    """Yield pairs: a command of another server, and what to use here."""
    for _, names, here in _ROWS:
        for name in names.split():
            yield name, here


def advice_on(command: str) -> str | None:
    """Return one line of advice on another server's command; None for other commands."""
    for program, names, here in _ROWS:
        if command in names.split():
            return f"`{command}` is a command of {program}; here: {here}"
    return None
