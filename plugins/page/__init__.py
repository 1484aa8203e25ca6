"""The page that browsers get at `/`: chats with the model, the engine at work, and batches."""

from __future__ import annotations

from llmfw.core import RegisterRoute, hookimpl


@hookimpl
def register_routes(register: RegisterRoute) -> None:
    register("llmfw.plugins.page.routes:Page")
    register("llmfw.plugins.page.routes:frames")
