"""`llmfw` whose `batch run` has the echo engine in the engine process: everything but the engine is real."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from llmfw.core.client.process import ProcessEngineClient

ECHO_COMMAND = (sys.executable, str(Path(__file__).parent / "echo_engine.py"))
EchoClient = partial(ProcessEngineClient, command=ECHO_COMMAND)

if __name__ == "__main__":
    import llmfw.api.offline.run
    from llmfw.api.cli import build_cli

    llmfw.api.offline.run.ProcessEngineClient = EchoClient  # type: ignore
    build_cli()(prog_name="llmfw")
