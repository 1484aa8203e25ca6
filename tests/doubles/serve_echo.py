"""`llmfw serve` with the echo engine in the engine process: everything but the engine is real, and it starts fast.

Arguments: a model folder, and further options.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import llmfw.api.app.serve
from llmfw.api.cli import build_cli
from llmfw.core.client.process import ProcessEngineClient

OPTIONS = "--load-format dummy --served-model-name tiny --port 0 --tool-parser hermes"

if __name__ == "__main__":
    command = (sys.executable, str(Path(__file__).parent / "echo_engine.py"))
    llmfw.api.app.serve.ProcessEngineClient = partial(ProcessEngineClient, command=command)  # type: ignore
    build_cli()(["serve", sys.argv[1], *OPTIONS.split(), *sys.argv[2:]], prog_name="llmfw")
