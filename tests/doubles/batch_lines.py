"""Files of requests, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def request(custom_id: str, prompt: str = "Hello", **fields: Any) -> dict[str, Any]:
    """Return a request that the echo engine answers with its prompt."""
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"prompt": prompt, "max_tokens": 100, **fields},
    }


def write_requests(path: Path, requests: Iterable[dict[str, Any]]) -> Path:
    """Write a file of requests, and return its path."""
    path.write_text("".join(json.dumps(each) + "\n" for each in requests))
    return path


def texts_of(output: str) -> dict[str, str]:
    """Return what an output file has: custom id → text of the completion. No id may be there twice."""
    lines = [json.loads(line) for line in output.splitlines()]
    found = {line["custom_id"]: line["response"]["body"]["choices"][0]["text"] for line in lines}
    assert len(found) == len(lines)
    return found


def statuses_of(errors: str) -> dict[str, int]:
    """Return what an error file has: custom id → status of the answer."""
    lines = [json.loads(line) for line in errors.splitlines()]
    return {line["custom_id"]: line["response"]["status_code"] for line in lines}
