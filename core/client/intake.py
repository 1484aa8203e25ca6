"""What an engine does with a message of a client, wherever it runs: in its own process or in a thread of the API's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..errors import LLMFWError
from ..request import Abort, EngineStats, Request, ToEngine, TokenEvent

if TYPE_CHECKING:
    from ..engine.engine import Engine

logger = logging.getLogger(__name__)


def take_in(engine: Engine, message: ToEngine) -> TokenEvent | EngineStats | None:
    """Give a message to the engine; return what is to be answered at once, if anything.

    A request that the engine does not accept is answered with the event that ends it; other requests go on.
    """
    if isinstance(message, Request):
        return _add(engine, message)
    if isinstance(message, Abort):
        for request_id in message.ids:
            engine.abort(request_id)
        return None
    return engine.stats()


def _add(engine: Engine, request: Request) -> TokenEvent | None:
    try:
        engine.add(request)
    except Exception as error:  # one request must not end the engine for all
        if not isinstance(error, LLMFWError):
            logger.exception("request %s could not be added", request.id)
        return TokenEvent.failed(request.id, error)
    return None
