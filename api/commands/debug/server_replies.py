"""Asks a running server for the facts for a bug report: health, engine settings, versions and metrics."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..remote import Remote, RemoteError

if TYPE_CHECKING:
    import httpx

PATHS = {
    "/version": "version.json",
    "/server_info": "server_info.json",
    "/model_info": "model_info.json",
    "/metrics": "metrics.txt",
}
"""Path → name of the file for the reply. No reply shows what clients have sent."""
TIMEOUT_S = 10.0

_TENANT = re.compile(r'(\btenant=")((?:[^"\\]|\\.)*)"')


@dataclass
class ServerReplies:
    """Replies of a server.

    Attributes:
        texts: name of the file → body of a reply. Names of tenants are replaced by numbers.
        errors: path → why it has no reply; "/": the server did not answer.
    """

    texts: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def ask_server(remote: Remote) -> ServerReplies:
    """Ask a server for its health and all PATHS. An unreachable server is asked once.

    Leaves out error messages, because the message of an engine's exception may quote a request.
    """
    found = ServerReplies()
    try:
        with remote.requests(TIMEOUT_S) as client:
            found.texts["health.json"] = _health(client.get("/health"))
            for path, name in PATHS.items():
                reply = client.get(path)
                if reply.is_error:
                    found.errors[path] = f"status {reply.status_code}"
                else:
                    found.texts[name] = without_tenants(reply.text)
    except RemoteError as error:
        found.errors["/"] = str(error)
    return found


def _health(reply: httpx.Response) -> str:
    """Return the status of `GET /health`, and the code of its error, as JSON."""
    try:
        code = reply.json()["error"]["code"]
    except (ValueError, LookupError, TypeError):
        code = None
    return json.dumps({"status": reply.status_code, "code": code}) + "\n"


def without_tenants(metrics: str) -> str:
    """Return metrics with `tenant-1`, `tenant-2`, … in place of the names of tenants."""
    numbers: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        return f'{match[1]}tenant-{numbers.setdefault(match[2], len(numbers) + 1)}"'

    return _TENANT.sub(numbered, metrics)
