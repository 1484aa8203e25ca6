"""Ollama's HTTP API, for clients that know no other: `/api/chat`, `/api/generate`, `/api/tags` and more."""

from __future__ import annotations

from llmfw.core import RegisterRoute, hookimpl


@hookimpl
def register_routes(register: RegisterRoute) -> None:
    register("llmfw.plugins.api_ollama.answers:Answers")
    register("llmfw.plugins.api_ollama.models:Models")
