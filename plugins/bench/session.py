"""One call of `llmfw bench`: probes the server, runs the workloads and prints the results."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from llmfw.core.terminal.tables import print_table

from .client import CompletionClient
from .dialogue import Dialogue
from .errors import BenchError
from .prompts import COMMON_IDS, PromptSource, TokenIds, TokenizerText, whole_words
from .report import COLUMNS, Figures, figures_of, rows, summarize
from .runner import calibrate, run_workload
from .workloads import Workload

T = TypeVar("T")


@dataclass(frozen=True)
class Settings:
    """The command's options; see their help texts in command.py."""

    workloads: list[Workload]
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


def measure(settings: Settings) -> None:
    """Run the workloads and print their metrics: JSON or a table to stdout, progress to stderr.

    Raises:
        BenchError: nothing could be measured; or, raised after printing, some requests failed.
    """
    if settings.prompt_mode == "ids" and settings.api == "chat":
        raise BenchError("--prompt-mode ids: the chat API takes no token ids; use --api completions")
    results = _run(_measure(settings))
    if not settings.as_json:
        print_table(COLUMNS, rows(results))
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
    modes = ["text" if workload.turns > 1 else settings.prompt_mode for workload in settings.workloads]
    sources = {mode: await _prompt_source(settings, client, mode) for mode in dict.fromkeys(modes)}
    results = []
    for workload, mode in zip(settings.workloads, modes, strict=True):
        result = await _measure_workload(settings, client, workload, sources[mode], seed)
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


async def _measure_workload(
    settings: Settings, client: CompletionClient, workload: Workload, prompts: PromptSource, seed: int
) -> Figures:
    """Run a workload once to warm up, then `settings.runs` times; return the medians and all metrics."""
    workload = workload.scaled(settings.scale)
    _progress(f"{workload.name}: warm-up")
    await run_workload(client, workload.warmup(), prompts, f"{seed}/{workload.name}/warm-up")
    runs: list[Figures] = []
    for number in range(1, settings.runs + 1):
        run = await run_workload(client, workload, prompts, f"{seed}/{workload.name}/{number}")
        runs.append(figures_of(run))
        _progress(f"{workload.name}: run {number} of {settings.runs}: {runs[-1]['output_tok_s']} tok/s")
    described = {
        "workload": workload.name,
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
    """Run a coroutine to its end, on uvloop if installed, which reads streams at half the CPU cost."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)
