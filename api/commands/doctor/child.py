"""The process that imports one plugin and its components, and reports each as a line of JSON on standard output.

Output of foreign code goes to standard error. The arguments are the plugin's name (also in LLMFW_PLUGINS), and the
components to leave out because importing them ended an earlier process.
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
    """Load the plugins of this process and import their components. Reports each one before and after."""
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
    """Return a component's name for the report."""
    return f"{component.kind.replace('_', ' ')} {component.full_name}"


def _examined(component: Entry) -> dict[str, Any]:
    from .checks import problems_of

    lacking = component.lacking()
    began = time.perf_counter()
    problems = [] if lacking else list(problems_of(component))
    return {"lacks": lacking, "problems": problems, "seconds": time.perf_counter() - began}


def _examined_route(plugin: str, path: str) -> dict[str, Any]:
    from llmfw.api.app.plugin_routes import import_route, route_entry  # brings Litestar

    began = time.perf_counter()
    problems = []
    try:
        import_route(plugin, path)
    except ComponentError as error:
        problems.append(str(error).removeprefix(str(route_entry(plugin, path))).strip())
    return {"lacks": None, "problems": problems, "seconds": time.perf_counter() - began}


def main() -> None:
    """Examine the plugin of this process. Only the report goes to standard output."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as report:
        os.dup2(2, 1)

        def tell(event: dict[str, Any]) -> None:
            print(json.dumps(event), file=report, flush=True)

        examine(sys.argv[1:], tell)
        tell({"event": "end"})
        os._exit(0)  # threads that a component left running must not keep this process alive


if __name__ == "__main__":
    main()
