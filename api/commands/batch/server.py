"""HTTP client for the files and batches of a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from ..remote import Remote, RemoteError, UnreachableError, check

ASK_TIMEOUT_S = 60.0
MAX_PAGE = 100
PIECE = 2**18

Job = dict[str, Any]
"""A batch object, as decoded from the server's JSON."""


class BatchServer:
    """Client for a server's files and batches. If a request fails, its method raises RemoteError.

    Attributes:
        flag: option that names the server in a command (`Remote.flag`).
    """

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.flag = remote.flag

    def upload(self, path: Path, on_read: Callable[[int], None]) -> str:
        """Upload a file without reading it as a whole; return its id.

        Args:
            on_read: called with the number of bytes that have been read so far.
        """
        with open(path, "rb") as file, self._remote.requests() as http:
            reply = http.post(
                "/v1/files",
                data={"purpose": "batch"},
                files={"file": (path.name, _Counted(file, on_read), "application/jsonl")},  # type: ignore[dict-item]
            )
            check(reply)
            return str(self._object(reply.text, "id")["id"])

    def delete_file(self, file_id: str) -> None:
        """Delete a file from the server."""
        with self._remote.requests(ASK_TIMEOUT_S) as http:
            check(http.delete(f"/v1/files/{quote(file_id, safe='')}"))

    def content(self, file_id: str) -> Generator[bytes, None, None]:
        """Yield a file's bytes as they arrive."""
        path = f"/v1/files/{quote(file_id, safe='')}/content"
        with self._remote.requests() as http, http.stream("GET", path) as reply:
            check(reply)
            yield from reply.iter_bytes(PIECE)

    def create(self, body: dict[str, Any]) -> Job:
        """Create a batch and return it."""
        return self._ask("POST", "/v1/batches", json=body)

    def get(self, batch_id: str) -> Job:
        """Return a batch."""
        return self._ask("GET", _path(batch_id))

    def cancel(self, batch_id: str) -> Job:
        """Ask the server to cancel a batch; return the batch, which may still be running."""
        return self._ask("POST", f"{_path(batch_id)}/cancel")

    def list(self, limit: int) -> list[Job]:
        """Return at most `limit` batches, newest first."""
        found: list[Job] = []
        while len(found) < limit:
            params = {"limit": str(min(MAX_PAGE, limit - len(found)))}
            if found:
                params["after"] = str(found[-1]["id"])
            with self._remote.requests(ASK_TIMEOUT_S) as http:
                reply = http.get("/v1/batches", params=params)
                check(reply)
                page = self._object(reply.text, "data")
            found.extend(page["data"])
            if not (page.get("has_more") and page["data"]):
                break
        return found[:limit]

    def _ask(self, method: str, path: str, **fields: Any) -> Job:
        with self._remote.requests(ASK_TIMEOUT_S) as http:
            reply = http.request(method, path, **fields)
            check(reply)
            return self._object(reply.text, "status")

    def _object(self, text: str, field: str) -> dict[str, Any]:
        """Decode the JSON object of a reply; raise RemoteError if it lacks a field."""
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not (isinstance(found, dict) and found.get(field) is not None):
            raise RemoteError(f"{self._remote.url} does not answer as a server of batches; is --url right?")
        return found


def may_pass(error: RemoteError) -> bool:
    """Return whether the error may be temporary."""
    return isinstance(error, UnreachableError) or error.status in (408, 429) or (error.status or 0) >= 500


class _Counted:
    """A file that reports the number of bytes read. Has `fileno()`, from which httpx gets its size."""

    def __init__(self, file: BinaryIO, on_read: Callable[[int], None]) -> None:
        self._file = file
        self._on_read = on_read
        self._num_read = 0

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._file.fileno()

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes, and report the total."""
        data = self._file.read(size)
        self._num_read += len(data)
        self._on_read(self._num_read)
        return data


def _path(batch_id: str) -> str:
    return f"/v1/batches/{quote(batch_id, safe='')}"
