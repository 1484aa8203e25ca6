"""`llmfw serve` with `stub_engine.py` in its engine process; everything else is what users run.

python stub_llmfw.py FOLDER PORT STREAM_INTERVAL SECONDS_A_STEP [STORAGE]

SERVER_SETTINGS in the environment has further fields of ServerConfig, in JSON.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import llmfw.api.app.serve
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.plugin.plugins import load_plugins

if __name__ == "__main__":
    folder, port, interval, step_s, *storage = sys.argv[1:]
    stub = (sys.executable, str(Path(__file__).parent / "stub_engine.py"), step_s)
    llmfw.api.app.serve.ProcessEngineClient = partial(ProcessEngineClient, command=stub)  # type: ignore
    llmfw.api.app.serve.serve(
        EngineConfig(model=folder, stream_interval=int(interval)),
        ServerConfig(
            served_model_name="demo",
            port=int(port),
            log_level="warning",
            storage=storage[0] if storage else None,
            **json.loads(os.environ.get("SERVER_SETTINGS", "{}")),
        ),
        load_plugins(),
    )
