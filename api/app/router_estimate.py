"""Adds the router's estimate to replies whose requests ask for it."""

from __future__ import annotations

from litestar.types import HTTPScope, Message

from llmfw.core.client.whole_request import open_whole_request

HEADER = b"llmfw-router-estimate"


def add_router_estimate(scope: HTTPScope, message: Message) -> None:
    """Add the estimate to the start of a reply: seconds from the choice of an engine until it has computed the prompt.

    A request asks for the estimate with a header of the same name and any value. For several prompts or
    choices, the reply has the longest estimate. The reply has no such header if the server has one engine, or
    the engine's speed has not been measured.
    """
    if HEADER not in dict(scope["headers"]):
        return
    whole = open_whole_request()
    if whole is not None and whole.estimated_s is not None:
        message["headers"] = [  # type: ignore[typeddict-unknown-key]
            *message["headers"],  # type: ignore[typeddict-item]
            (HEADER, f"{whole.estimated_s:.4f}".encode()),
        ]
