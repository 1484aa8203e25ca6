"""A server without observers and middleware has no calls for them on the way of a request."""

from __future__ import annotations

from typing import Any, cast

from llmfw.api.app.plugin_middleware import wrapped
from llmfw.api.services.observing import observed
from llmfw.core.base.config import EngineConfig
from llmfw.core.client.observers import Observers


def test_without_observers_the_client_is_the_engine_s() -> None:
    client = cast("Any", object())
    assert observed(client, Observers(), "model") is client


def test_without_middleware_the_application_stays() -> None:
    app = cast("Any", object())
    assert all(wrapped(app, (), outside_checks=outside) is app for outside in (True, False))


def test_the_engine_s_settings_know_no_such_hooks() -> None:
    assert not {"observers", "middleware", "authenticators"} & set(EngineConfig.__struct_fields__)
