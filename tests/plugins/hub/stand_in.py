"""A server that answers like the hub: a model's list of files, and their contents with etags."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ...doubles.scripted_server import STOPS_WITHIN_S

COMMIT = "c0ffee" * 6 + "c0ff"
BIG = 100  # bytes from which a file has a checksum


@dataclass
class Hub:
    """What the hub has and does.

    Attributes:
        files: contents by name, of the only model `org/model`.
        sent: contents that are sent in place of those of `files`, by name.
        breaks_after: bytes after which the next reply breaks off; None: never.
        sent_whole: names of the files whose contents were sent to their end, in order.
    """

    files: dict[str, bytes]
    sent: dict[str, bytes] = field(default_factory=dict)
    breaks_after: int | None = None
    sent_whole: list[str] = field(default_factory=list)
    url: str = ""

    def info(self) -> dict[str, Any]:
        siblings = []
        for name, data in self.files.items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": etag(data)}
            if len(data) >= BIG:
                entry["lfs"] = {"sha256": etag(data), "size": len(data), "pointerSize": 1}
            siblings.append(entry)
        return {"id": "org/model", "sha": COMMIT, "siblings": siblings}

    def tree(self) -> list[dict[str, Any]]:
        entries = []
        for name, data in self.files.items():
            entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": etag(data)[:40]}
            if len(data) >= BIG:
                entry["lfs"] = {"oid": etag(data), "size": len(data), "pointerSize": 1}
            entries.append(entry)
        return entries


def etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def hub(files: dict[str, bytes]) -> Iterator[Hub]:
    """Serve a hub on a free port until the block ends."""
    state = Hub(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET(with_body=False)

        def do_GET(self, *, with_body: bool = True) -> None:
            path = self.path.partition("?")[0]
            if path.startswith("/api/models/org/model/tree/"):
                self.answer(200, json.dumps(state.tree()).encode(), {}, with_body=with_body)
            elif path.startswith("/api/models/org/model"):
                self.answer(200, json.dumps(state.info()).encode(), {}, with_body=with_body)
            elif (name := path.partition(f"/org/model/resolve/{COMMIT}/")[2]) in state.files:
                self.send_file(name, with_body=with_body)
            else:
                self.answer(404, b"{}", {"X-Error-Code": "RepoNotFound"}, with_body=with_body)

        def send_file(self, name: str, *, with_body: bool) -> None:
            data = state.sent.get(name, state.files[name])
            headers = {
                "ETag": f'"{etag(state.files[name])}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            if self.answer(200, data, headers, with_body=with_body) and with_body:
                state.sent_whole.append(name)

        def answer(self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool) -> bool:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            end = state.breaks_after
            is_broken = with_body and end is not None and len(body) > end
            if is_broken:
                state.breaks_after, self.close_connection = None, True
            if with_body:
                self.wfile.write(body[:end] if is_broken else body)
            return not is_broken

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(STOPS_WITHIN_S,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
