"""A server of known behavior, and the command that measures it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli

from .metronome import Metronome, serving


@pytest.fixture
def metronome() -> Iterator[Callable[..., Metronome]]:
    """Return a function that starts a server of the given behavior."""
    with ExitStack() as servers:
        yield lambda **behavior: servers.enter_context(serving(Metronome(**behavior)))


@pytest.fixture
def bench() -> Callable[..., Result]:
    """Return a function that runs `llmfw bench` with the given arguments."""
    return lambda *arguments: CliRunner().invoke(build_cli(), ["bench", *map(str, arguments)])


@pytest.fixture
def measured(bench: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs one workload once against a server and returns the JSON object printed."""

    def run(server: Metronome, workload: str, *arguments: object) -> dict[str, Any]:
        shown = bench("--base-url", server.url, "--workload", workload, "--runs", 1, "--json", *arguments)
        return dict(json.loads(shown.stdout))

    return run
