"""One client's thousands of choices, background responses, references and batch lines leave room for another one.

Before: p50 16.8 s and a tenth of the probes timed out (choices); all timed out and 1.2 GB stayed taken (background); p50 6 s
(references); the API answered nothing for 33 s (a batch line of 54 MB).
"""

from __future__ import annotations

import contextlib
import time

import httpx

from .harness import unhurt


def test_thousands_of_choices_leave_places_free(server, http):
    body = {"model": "demo", "prompt": ["a b c " * 100] * 32, "n": 128, "max_tokens": 16}
    with unhurt(server), contextlib.suppress(httpx.ReadTimeout):
        http.post("/v1/completions", json=body, timeout=5)


def test_background_responses_leave_places_free(server, http):
    body = {"model": "demo", "input": "Tell a story.", "background": True, "max_output_tokens": 300}
    with unhurt(server):
        ids = [http.post("/v1/responses", json=body).json()["id"] for _ in range(300)]
        for response_id in ids:
            http.post(f"/v1/responses/{response_id}/cancel")


def test_references_to_a_large_item_are_read_once(server, http):
    items = [{"role": "user", "content": "x " * 2_000_000}, {"role": "user", "content": "Hi"}]
    body = {"model": "demo", "truncation": "auto", "max_output_tokens": 2}
    stored = http.post("/v1/responses", json=body | {"input": items}).json()["id"]
    found = http.get(f"/v1/responses/{stored}/input_items", params={"limit": 1, "order": "asc"}).json()
    reference = {"type": "item_reference", "id": found["data"][0]["id"]}
    with unhurt(server):
        http.post("/v1/responses", json=body | {"input": [reference] * 300})


def test_a_batch_line_has_a_body_s_limits(server, http):
    members = ",".join(f'"k{i}":1' for i in range(1_000_000))
    body = f'{{"messages":[{{"role":"user","content":"x"}}],"chat_template_kwargs":{{{members}}}}}'
    line = f'{{"custom_id":"1","method":"POST","url":"/v1/chat/completions","body":{body}}}'
    with unhurt(server):
        file = http.post("/v1/files", files={"file": ("in.jsonl", line)}, data={"purpose": "batch"}).json()
        asked = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = http.post("/v1/batches", json=asked).json()
        deadline = time.monotonic() + 20
        while batch["status"] not in ("failed", "completed") and time.monotonic() < deadline:
            time.sleep(0.1)
            batch = http.get(f"/v1/batches/{batch['id']}").json()
    assert [error["code"] for error in batch["errors"]["data"]] == ["json_too_complex"]
