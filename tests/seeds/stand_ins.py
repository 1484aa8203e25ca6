"""Stand-ins for what the notebooks import from SGLang: they hand out a server that runs already, or start one.

Nothing else of a notebook has one. Knows nothing of cells.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx

from llmfw.api.launch.server import Server

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

    return _modules(launch, launch_on_a_free_port, wait_for_server, terminate)


def starting_modules(server: Server) -> Mapping[str, ModuleType]:
    """Return the modules for a kernel that starts a server itself, as docs/python.md tells users of these notebooks.

    Args:
        server: not yet launched. Who made it terminates it; one notebook does so in its second cell, and goes on.
    """

    def launch(command: str) -> SimpleNamespace:
        server.launch()
        return SimpleNamespace(stdout=io.StringIO(server.log), stderr=None)

    def launch_on_a_free_port(command: str) -> tuple[SimpleNamespace, int]:
        return launch(command), int(server.url.rpartition(":")[2])

    def wait_for_server(base_url: str) -> None:
        server.wait()

    def terminate(process: SimpleNamespace) -> None:
        process.stdout.close()

    return _modules(launch, launch_on_a_free_port, wait_for_server, terminate)


def _modules(
    launch: Callable[..., Any],
    launch_on_a_free_port: Callable[..., Any],
    wait_for_server: Callable[..., Any],
    terminate: Callable[..., Any],
) -> Mapping[str, ModuleType]:
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
