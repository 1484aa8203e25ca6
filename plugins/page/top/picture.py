"""Makes the lines that `llmfw top` shows, for a terminal of any size. Does not print."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size

from llmfw.core import EngineStats, RequestView, StepsView

from ..feed import Frame
from .rates import Rates, sparkline

HEADER = f"{'request':<16} {'tenant':<12} {'prompt':>8} {'output':>8}  state"
BAR = 20


def picture(
    frame: Frame, rates: Rates | None, outputs: Sequence[float], width: int, height: int
) -> list[str]:
    """Return at most `height` lines of at most `width` cells.

    Args:
        rates: figures of the last interval; None: there are none yet.
        outputs: output tokens per second in each of the last intervals.
    """
    lines = [*_figures(frame, rates, outputs, width), ""]
    if frame.steps is not None:
        lines += _requests(frame.steps, height - len(lines))
    elif frame.stats is not None:
        lines.append("This server does not show single requests: it embeds, or has several engines.")
    return [fitted(clean(line), width) for line in lines[:height]]


def clean(text: str) -> str:
    """Replace the characters that a terminal would act on: clients choose the names of tenants."""
    return "".join(
        "\ufffd" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char for char in text
    )


def fitted(line: str, width: int) -> str:
    """Cut a line to at most `width` cells of a terminal. Some characters take two cells."""
    return line if cell_len(line) <= width else set_cell_size(line, width)


def bar(share: float, width: int = BAR) -> str:
    """Draw a share from 0 to 1 as a bar."""
    filled = round(width * min(1.0, max(0.0, share)))
    return "█" * filled + "░" * (width - filled)


def _figures(frame: Frame, rates: Rates | None, outputs: Sequence[float], width: int) -> Iterator[str]:
    if frame.problem:
        yield f"No answer from the engine: {frame.problem}"
    if (stats := frame.stats) is None:
        return
    yield f"running {stats.num_running:,}{_of_batches(stats.num_deferrable_running)}   waiting {stats.num_waiting:,}{_of_batches(stats.num_deferrable_waiting)}   retractions {stats.num_retractions:,}"
    yield _storage(stats)
    if rates is None:
        return
    yield f"output  {rates.output:,.0f} tok/s   prompts {rates.prompt:,.0f} tok/s   steps {rates.steps:,.1f}/s"
    shares = (
        ("cached", rates.cached_share, "of prompts"),
        ("accepted", rates.accepted_share, "of drafts"),
        ("busy", rates.busy_share, "of the time"),
    )
    if told := [f"{name} {share:.0%} {of}" for name, share, of in shares if share is not None]:
        yield "   ".join(told)
    drawn = sparkline(outputs, max(10, width - 26))
    yield f"output tok/s  {drawn}  max {max(outputs, default=0.0):,.0f}"


def _storage(stats: EngineStats) -> str:
    total = stats.num_total_tokens
    if not total:
        return "no KV cache"
    used, cached = stats.num_used_tokens / total, stats.num_cached_tokens / total
    return f"KV cache {bar(used)} {used:.0%} of {total:,} tokens in use, prefix cache {cached:.0%}"


def _of_batches(number: int) -> str:
    return f" ({number:,} of batches)" if number else ""


def _requests(steps: StepsView, room: int) -> Iterator[str]:
    """Yield the table of requests: first the waiting ones, which users look for, then the running ones."""
    waiting, running = list(steps.waiting), list(steps.running)
    for_waiting = min(len(waiting), max(1, (room - 2) // 2))
    for_running = max(0, room - 2 - for_waiting)
    yield HEADER
    yield from (_row(each, each.reason or "waits") for each in waiting[:for_waiting])
    yield from (_row(each, _progress(each)) for each in running[:for_running])
    hidden = steps.num_waiting - for_waiting + max(0, len(running) - for_running)
    if hidden > 0:
        yield f"{hidden:,} more"


def _row(request: RequestView, state: str) -> str:
    output = max(0, request.num_tokens - request.prompt_tokens)
    kind = "batch " if request.deferrable else ""
    return f"{_short(request.id, 16):<16} {_short(request.tenant, 12):<12} {request.prompt_tokens:>8,} {output:>8,}  {kind}{state}"


def _progress(request: RequestView) -> str:
    if request.num_computed < request.prompt_tokens:
        return f"prefill {bar(request.num_computed / request.prompt_tokens, 10)} {request.num_computed:,}"
    return "decode"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
