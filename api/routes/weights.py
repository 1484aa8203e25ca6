"""POST /admin/weights: serve another checkpoint of the same model."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.admin.weights import WeightsService
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.lifecycle.drain import Drain
from llmfw.api.schemas.lifecycle import WeightsReply, WeightsRequest
from llmfw.api.server.limits import SMALL_BODY_BYTES
from llmfw.api.text.by_model import ByModel
from llmfw.core.interfaces.operation import describe

from .lifecycle import checked_timeout
from .respond import json_response, model_in, read_json


def weights_routes(
    drain: Drain, models: ByModel[WeightsService], *, strict: bool = False
) -> list[HTTPRouteHandler]:
    """Return the route handler of `/admin/weights`.

    Args:
        models: services of the models. `?model=NAME` chooses one; else it is the first.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/admin/weights",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Serve another checkpoint of the same model.",
            scope="admin",
            body=WeightsRequest,
            reply=WeightsReply,
            query={"model": str},
        ),
    )
    async def load_weights(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), WeightsRequest)
        headers = report_ignored(ignored, strict)
        timeout_s = checked_timeout(drain.timeout_s if body.timeout_s is None else body.timeout_s)
        info = await models.of(model_in(request)).load(body.path, timeout_s, waits=body.wait)
        reply = WeightsReply(
            weight_version=info.version, host_bytes=info.host_bytes, device_bytes=info.device_bytes
        )
        return json_response(reply, headers)

    return [load_weights]
