"""`llmfw serve` with the echo engine in the engine process: everything but the engine is real, and it starts fast.

Arguments: a model folder.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import llmfw.api.app.serve
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.plugin.plugins import load_plugins

if __name__ == "__main__":
    command = (sys.executable, str(Path(__file__).parent / "echo_engine.py"))
    llmfw.api.app.serve.ProcessEngineClient = partial(ProcessEngineClient, command=command)  # type: ignore
    engine_config = EngineConfig(model=sys.argv[1], load_format="dummy")
    llmfw.api.app.serve.serve(
        engine_config, ServerConfig(served_model_name="tiny", port=0, tool_parser="hermes"), load_plugins()
    )
