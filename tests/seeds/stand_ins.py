"""Stand-ins for what the notebooks import from SGLang: they hand out a server that runs already.

Nothing else of a notebook has one. Knows nothing of cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx

from ..crash.server import START_TIMEOUT_S, ServerProcess, wait_until


def sglang_modules(server: ServerProcess) -> Mapping[str, ModuleType]:
    """Return the modules, by their names."""

    def launch(command: str) -> SimpleNamespace:
        """Take the place of starting a server: return what a notebook reads of its process."""
        return SimpleNamespace(stdout=server.log.open(), stderr=None)

    def launch_on_a_free_port(command: str) -> tuple[SimpleNamespace, int]:
        return launch(command), server.port

    def terminate(process: SimpleNamespace) -> None:
        """Leave the server to the next notebook; one of them terminates it in its second cell, and goes on."""
        process.stdout.close()

    def wait_for_server(base_url: str) -> None:
        wait_until(lambda: httpx.get(f"{base_url}/v1/models").is_success, START_TIMEOUT_S, "the start")

    utils: dict[str, Any] = {
        "lauch_sglang_server": launch,
        "execute_shell_command": launch,
        "launch_server_cmd": launch_on_a_free_port,
        "wait_for_server": wait_for_server,
        "terminate_process": terminate,
        "print_highlight": print,
        "highlight_text": print,
    }
    return {
        "sglang": _module("sglang"),
        "sglang.utils": _module("sglang.utils", **utils),
        "sglang.test": _module("sglang.test"),
        "sglang.test.test_utils": _module("sglang.test.test_utils", is_in_ci=lambda: False),
    }


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    return module
