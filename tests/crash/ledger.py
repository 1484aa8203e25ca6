"""What a server has accepted, and whether it still has all of it in the end."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any, Self

import httpx

ENDED = {"completed", "failed", "expired", "cancelled"}


class Ledger:
    """What was accepted: the server has said so, and so may not lose it.

    Attributes:
        files: id → bytes.
        batches: ids.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.batches: set[str] = set()

    def complaints(self, http: httpx.Client) -> list[str]:
        """Return what the server lacks, or has wrong. It has nothing left to do."""
        found = [
            f"file {id} is not what was uploaded"
            for id, content in self.files.items()
            if http.get(f"/v1/files/{id}/content").content != content
        ]
        batches = list_all(http, "/v1/batches", 100)
        found += [f"batch {id} is gone" for id in self.batches - {batch["id"] for batch in batches}]
        return found + [complaint for batch in batches for complaint in batch_complaints(http, batch)]


def batch_complaints(http: httpx.Client, batch: dict[str, Any]) -> list[str]:
    """Return what is wrong with a batch: each of its lines must have one result, in one of its files."""
    name = f"batch {batch['id']} ({batch['status']})"
    if batch["status"] not in ENDED:
        return [f"{name} has not ended"]
    if batch["errors"] and batch["errors"]["data"]:
        return [f"{name} has errors and files"] if batch["output_file_id"] or batch["error_file_id"] else []
    asked = [line["custom_id"] for line in lines_of(http, batch["input_file_id"])]
    answered = lines_of(http, batch["output_file_id"])
    failed = lines_of(http, batch["error_file_id"])
    found = []
    if Counter(line["custom_id"] for line in answered + failed) != Counter(asked):
        found.append(f"{name}: {len(answered)} and {len(failed)} results of {len(asked)} lines")
    if any(line["response"]["status_code"] != 200 for line in answered):
        found.append(f"{name}: a failed line is in the output file")
    if any(not line["error"] and line["response"]["status_code"] < 400 for line in failed):
        found.append(f"{name}: a line that did not fail is in the error file")
    counts = {"total": len(asked), "completed": len(answered), "failed": len(failed)}
    if batch["request_counts"] != counts:
        found.append(f"{name}: counts {batch['request_counts']}, in the files {counts}")
    return found


def lines_of(http: httpx.Client, file_id: str | None) -> list[dict[str, Any]]:
    """Return the lines of a file, each whole."""
    if file_id is None:
        return []
    content = http.get(f"/v1/files/{file_id}/content").raise_for_status().content
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.splitlines()]


def list_all(http: httpx.Client, path: str, limit: int) -> list[dict[str, Any]]:
    """Return the items of all pages."""
    found: list[dict[str, Any]] = []
    more, after = True, {}
    while more:
        page = http.get(path, params={"limit": limit, **after}).raise_for_status().json()
        found += page["data"]
        more, after = page["has_more"], {"after": page["last_id"]}
    return found


def leftovers(storage: Path, tmp: Path) -> list[str]:
    """Return the files of a server that no record tells of. torch has a cache among the temporary ones."""
    with sqlite3.connect(f"file:{storage / 'files.db'}?mode=ro", uri=True) as db:
        known = {row[0] for row in db.execute("select content from files")}
    there = {str(path.relative_to(storage / "files")) for path in (storage / "files").rglob("*")}
    passing = (str(path) for path in tmp.rglob("*") if path.is_file())
    return sorted(there ^ known) + [path for path in passing if "torchinductor_" not in path]


class Watch:
    """Looks at the batches of a server, or of one that was killed, without asking it."""

    def __init__(self, storage: Path) -> None:
        self._db = sqlite3.connect(f"file:{storage / 'batches.db'}?mode=ro", uri=True, timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def states(self) -> Counter[str]:
        """Return how many batches are in each state."""
        return Counter(row[0] for row in self._db.execute("select status from batches"))
