"""Routes of vLLM, Cohere and SageMaker on texts: `/pooling`, `/score`, `/rerank`, `/classify`, `/v2/embed`, `/invocations`."""

from __future__ import annotations

from llmfw.core import RegisterRoute, hookimpl


@hookimpl
def register_routes(register: RegisterRoute) -> None:
    register("llmfw.plugins.api_pooling.vectors:Vectors")
    register("llmfw.plugins.api_pooling.similarity:Similarity")
    register("llmfw.plugins.api_pooling.classes:classify")
    register("llmfw.plugins.api_pooling.invocations:invoke")
