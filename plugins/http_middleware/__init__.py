"""The bundled middleware: `cors`, `gzip` and `br`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_middleware(register: Register) -> None:
    register(
        "cors",
        "llmfw.plugins.http_middleware.cors:Cors",
        summary="lets web pages of other sites read replies",
    )
    register(
        "gzip",
        "llmfw.plugins.http_middleware.gzip:Gzip",
        summary="compresses replies that are not streams",
    )
    register(
        "br",
        "llmfw.plugins.http_middleware.brotli:Brotli",
        summary="compresses replies that are not streams, by Brotli or gzip",
    )
