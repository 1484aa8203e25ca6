"""The bundled media processor: the processor that transformers has for the model."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_media_processors(register: Register) -> None:
    register(
        "images",
        "llmfw.plugins.media_transformers.processor:TransformersProcessor",
        summary="a model's own processor of transformers",
        needs=("PIL",),
    )
