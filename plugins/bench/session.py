"""Measures a server: probes it, and sends it the loads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from .client import CompletionClient
from .dialogue import Dialogue
from .errors import BenchError
from .load import Load
from .objectives import Objectives
from .prompts import COMMON_IDS, PromptSource, TokenIds, TokenizerText, whole_words
from .report import Figures, figures_of, summarize
from .runner import calibrate

T = TypeVar("T")
LATE_MS = 50.0


@dataclass(frozen=True)
class Settings:
    """The command's options; see their help texts in command.py."""

    loads: Sequence[Load]
    objectives: Objectives
    base_url: str
    model: str | None
    api: str
    api_key: str | None
    runs: int
    scale: float
    seed: int | None
    tokenizer: Path | None
    prompt_mode: str
    extra_body: dict[str, Any] | None
    timeout: float
    as_json: bool


def measure(settings: Settings) -> list[Figures]:
    """Run the loads and return their metrics. Prints progress to stderr and, if asked for, JSON to stdout.

    Raises:
        BenchError: nothing could be measured.
    """
    if settings.prompt_mode == "ids" and settings.api == "chat":
        raise BenchError("--prompt-mode ids: the chat API takes no token ids; use --api completions")
    return _run(_measure(settings))


def check_failures(results: Sequence[Figures]) -> None:
    """Raise BenchError if requests failed."""
    failed = sum(result["failed"] for result in results)
    if failed:
        error = next(result["first_error"] for result in results if "first_error" in result)
        raise BenchError(f"{failed} of the requests failed, the first with: {error}")


async def _measure(settings: Settings) -> list[Figures]:
    seed = random.SystemRandom().randrange(2**31) if settings.seed is None else settings.seed
    client = CompletionClient(
        settings.base_url,
        api=settings.api,
        model=settings.model or "",
        api_key=settings.api_key,
        extra=settings.extra_body,
        timeout=settings.timeout,
    )
    if not client.model:
        await client.find_model()
    # A conversation includes the model's replies, which the server returns as text.
    modes = ["text" if load.has_conversations else settings.prompt_mode for load in settings.loads]
    sources = {mode: await _prompt_source(settings, client, mode) for mode in dict.fromkeys(modes)}
    results = []
    for load, mode in zip(settings.loads, modes, strict=True):
        result = await _measure_load(settings, client, load, sources[mode], seed)
        results.append(result)
        if settings.as_json:
            click.echo(msgspec.json.encode(result))
    return results


async def _prompt_source(settings: Settings, client: CompletionClient, mode: str) -> PromptSource:
    """Return the source of prompts for a mode, after trying it on the server."""
    folder = settings.tokenizer
    source: PromptSource
    if mode == "ids":
        source = TokenIds(sorted(whole_words(folder).values()) if folder else COMMON_IDS)
    elif folder:
        source = TokenizerText(folder)
    else:
        return await calibrate(client)
    await client.probe(Dialogue(client.api).ask(source.draw(random.Random(0), 16)))
    return source


async def _measure_load(
    settings: Settings, client: CompletionClient, load: Load, prompts: PromptSource, seed: int
) -> Figures:
    """Warm up, then run a load `settings.runs` times; return the medians and all metrics."""
    title = load.name if load.rate is None else f"{load.name} at {load.rate:g}/s"
    _progress(f"{title}: warm-up")
    await load.warm_up(client, prompts, f"{seed}/{title}/warm-up")
    runs: list[Figures] = []
    for number in range(1, settings.runs + 1):
        run = await load.run(client, prompts, f"{seed}/{title}/{number}")
        runs.append(figures_of(run, settings.objectives))
        _progress(f"{title}: run {number} of {settings.runs}: {runs[-1]['output_tok_s']} tok/s")
        if (late := runs[-1].get("late_p99_ms") or 0) > LATE_MS:
            _progress(
                f"{title}: 1 % of the requests were sent {late:.0f} ms late or later: this client is too slow"
            )
    described = {
        "workload": load.name,
        "rate": load.rate,
        "objectives": dict(settings.objectives),
        "model": client.model,
        "base_url": client.base_url,
        "api": client.api,
        "prompt_mode": prompts.mode,
        "exact_length": client.exact_length,
        "seed": seed,
        "scale": settings.scale,
    }
    return described | summarize(runs)


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. Uses uvloop if installed, which reads streams at half the CPU cost."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
