"""A server that answers as it is told: for what a real one does only when something goes wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOST = None
"""An answer that never comes: the connection is closed."""

STOPS_WITHIN_S = 0.005
"""Seconds; the default of `serve_forever` is 0.5."""

Answer = dict[str, Any] | bytes | tuple[int, str] | None
"""JSON or bytes with status 200, an error's status and message, or LOST."""


@dataclass
class Scripted:
    """A running server, and what it was sent: "METHOD path" and bodies, in order."""

    url: str
    asked: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@contextmanager
def scripted(script: Mapping[str, Sequence[Answer]]) -> Iterator[Scripted]:
    """Run a server until the block ends.

    Args:
        script: "METHOD path" → its answers in order; the last one is given again and again.
    """
    left = {route: list(answers) for route, answers in script.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(f"{self.command} {self.path}")
            served.bodies.append(self.rfile.read(int(self.headers.get("content-length", 0))))
            answers = left[f"{self.command} {self.path.partition('?')[0]}"]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if answer is LOST:
                return
            status, body = answer if isinstance(answer, tuple) else (200, answer)
            if isinstance(body, str):
                body = {"error": {"message": body, "type": "error", "param": None, "code": None}}
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_DELETE = do_GET  # noqa: N815 - the names that http.server asks for

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Scripted(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(STOPS_WITHIN_S,))
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
