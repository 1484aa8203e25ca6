"""A plugin's route at a path that is taken is found, whatever its parameters are called."""

from __future__ import annotations

from typing import Any

import pytest
from litestar import Router, delete, get

from llmfw.api.app.plugin_routes import refuse_shared_paths, shared_paths
from llmfw.core.base.errors import ComponentError


@get("/v1/files/{file_id:str}")
async def built_in(file_id: str) -> str:
    return file_id


@get("/v1/files/{name:str}")
async def other_name(name: str) -> str:
    return name


@get(["/mine", "/v1/files/{number:int}"])
async def other_type(number: int = 0) -> int:
    return number


@get("/v1/files/{file_id:str}/mine")
async def below(file_id: str) -> str:
    return file_id


@delete("/v1/files/{name:str}")
async def other_method(name: str) -> None: ...


@pytest.mark.parametrize(
    ("handler", "shared"),
    [
        (other_name, ["GET /v1/files/{name:str}"]),
        (other_type, ["GET /v1/files/{number:int}"]),
        (below, []),
        (other_method, []),
    ],
)
def test_routes_clash_whatever_their_parameters_are_called(handler: Any, shared: list[str]) -> None:
    assert (
        shared_paths(Router("/", route_handlers=[built_in]), Router("/", route_handlers=[handler])) == shared
    )


def test_two_plugins_may_not_share_a_path() -> None:
    first, second, third = (("own", f"{__name__}:{name}") for name in ("built_in", "below", "other_name"))
    refuse_shared_paths([first, second])
    with pytest.raises(
        ComponentError, match=r"taken: GET /v1/files/{name:str} by route '.*:built_in' of plugin"
    ):
        refuse_shared_paths([first, second, third])
