"""The process that imports one plugin and its components. Reports events as JSON lines on standard output.

Output of the plugin's code goes to standard error. LLMFW_PLUGINS holds the plugin's name. The arguments are
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
    """Load this process's plugin and import its components. Reports the start and end of each import."""
    tell({"event": "loading"})
    began = time.perf_counter()
    plugins = load_plugins()
    broken = [str(each) for each in plugins.broken]
    tell({"event": "loaded", "seconds": time.perf_counter() - began, "broken": broken})
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

    lacking = component.lacking()
    began = time.perf_counter()
    problems = [] if lacking else list(problems_of(component))
    return {"lacks": lacking, "problems": problems, "seconds": time.perf_counter() - began}


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
    """Examine this process's plugin. Redirects all output except the report to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as report:
        os.dup2(2, 1)

        def tell(event: dict[str, Any]) -> None:
            print(json.dumps(event), file=report, flush=True)

        examine(sys.argv[1:], tell)
        tell({"event": "end"})
        os._exit(0)  # so that threads left by a component do not keep the process alive


if __name__ == "__main__":
    main()
