"""The servers of the API's tests, for the tests of what clients of other servers send."""

from __future__ import annotations

from ..api.conftest import demo_server, sdk, server

__all__ = ["demo_server", "sdk", "server"]
