"""`llmfw serve` with its own options and the echo engine in the engine process: all that keeps anything is real.

It starts in a fraction of the time, as it imports neither torch nor transformers.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import llmfw.api.app.serve
from llmfw.api.cli import build_cli
from llmfw.core.client.process import ProcessEngineClient

ENGINE = (sys.executable, str(Path(__file__).parents[1] / "doubles" / "echo_engine.py"))

if __name__ == "__main__":
    llmfw.api.app.serve.ProcessEngineClient = partial(ProcessEngineClient, command=ENGINE)  # type: ignore
    build_cli()(["serve", *sys.argv[1:]], prog_name="llmfw")
