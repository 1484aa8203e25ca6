"""The process that imports plugins and their components. Reports events as JSON lines on standard output.

Output of the plugins' code goes to standard error. LLMFW_PLUGINS holds the plugins' names. The arguments are
the components to leave out, because importing them ended an earlier process.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection
from typing import Any

from llmfw.core.base.errors import ComponentError
from llmfw.core.plugin.plugins import load_plugins
from llmfw.core.plugin.registry import Entry

Tell = Callable[[dict[str, Any]], None]


def examine(left_out: Collection[str], tell: Tell) -> None:
    """Load this process's plugins and import their components. Reports the start and end of each import."""
    tell({"event": "loading"})
    plugins = load_plugins()
    broken = [str(each) for each in plugins.broken]
    seconds = {
        f"plugin {each.name!r} ({each.distribution} {each.version})": each.seconds for each in plugins.loaded
    }
    tell({"event": "loaded", "plugins": seconds, "broken": broken})
    for plugin in plugins.loaded:
        package = f"{plugin.distribution} {plugin.version}".strip()
        for component in plugin.components:
            if label_of(component) not in left_out:
                tell({"event": "importing", "component": label_of(component), "package": package})
                tell({"event": "imported", **_examined(component)})
        for path in plugin.routes:
            if f"route {path}" not in left_out:
                tell({"event": "importing", "component": f"route {path}", "package": package})
                tell({"event": "imported", **_examined_route(plugin.name, path)})


def label_of(component: Entry) -> str:
    """Return the name of a component in the report, such as "tool parser hermes"."""
    return f"{component.kind.replace('_', ' ')} {component.full_name}"


def _examined(component: Entry) -> dict[str, Any]:
    from .checks import problems_of

    lacking, had_torch = component.lacking(), "torch" in sys.modules
    began = time.perf_counter()
    problems = [] if lacking else list(problems_of(component))
    seconds, torch = time.perf_counter() - began, not had_torch and "torch" in sys.modules
    return {"lacks": lacking, "problems": problems, "seconds": seconds, "torch": torch}


def _examined_route(plugin: str, path: str) -> dict[str, Any]:
    from llmfw.api.app.plugin_routes import import_route, route_entry  # imports Litestar

    began = time.perf_counter()
    problems = []
    try:
        import_route(plugin, path)
    except ComponentError as error:
        problems.append(str(error).removeprefix(str(route_entry(plugin, path))).strip())
    return {"lacks": None, "problems": problems, "seconds": time.perf_counter() - began}


def main() -> None:
    """Examine this process's plugins. Redirects all output except the report to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as report:
        os.dup2(2, 1)

        def tell(event: dict[str, Any]) -> None:
            print(json.dumps(event), file=report, flush=True)

        examine(sys.argv[1:], tell)
        tell({"event": "end"})
        os._exit(0)  # so that threads left by a component do not keep the process alive


if __name__ == "__main__":
    main()
