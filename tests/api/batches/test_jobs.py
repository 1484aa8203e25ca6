"""What becomes of a batch: every line in one of two files, once, and a record that says how it went."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any

import pytest

from llmfw.api.schemas.batches import OutputExpiresAfter
from llmfw.api.text.terms import key_name
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

from ...doubles.echo_engine import EchoEngine
from .rig import Line, chat_line, chat_lines, jsonl, running

Stores = dict[str, Any]


async def test_all_lines_are_answered(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create(chat_lines(20)))
        output, errors = await rig.outcome(record)
    assert (record.status, record.num_total, record.num_completed, record.num_failed) == (
        "completed",
        20,
        20,
        0,
    )
    texts = {
        line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in output
    }
    assert texts == {f"c{i}": f"hi{i}" for i in range(20)}
    assert errors == []
    assert record.error_file_id is None


async def test_lines_belong_to_the_batch_s_tenant(tokenizer: Tokenizer, stores: Stores) -> None:
    engine = EchoEngine()
    tenants: dict[str, list[str]] = {"ann": ["c0", "c1"], "": ["c2"]}
    async with running(tokenizer, stores, engine) as rig:
        for name, ids in tenants.items():
            key_name.set(name)
            lines = [chat_line(custom_id, custom_id, user="eve") for custom_id in ids]
            await rig.ended(await rig.create(lines))
    assert [request.tenant for request in engine.requests] == ["ann", "ann", "eve"]


async def test_a_rejected_line_is_in_the_error_file(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create([chat_line("a"), chat_line("b", temperature=-1)]))
        [good], [bad] = await rig.outcome(record)
    assert (record.status, record.num_completed, record.num_failed) == ("completed", 1, 1)
    assert (good["custom_id"], bad["custom_id"], bad["error"]) == ("a", "b", None)
    assert bad["response"]["status_code"] == 400
    assert bad["response"]["body"]["error"]["param"] == "temperature"


async def test_empty_files_are_not_created(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create([chat_line("a", temperature=-1)]))
    assert record.status == "completed"
    assert record.output_file_id is None
    assert record.error_file_id is not None


async def test_timestamps_are_ordered(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create(chat_lines(2)))
    stamps = (record.created_at, record.in_progress_at, record.finalizing_at, record.completed_at)
    assert None not in stamps
    assert list(stamps) == sorted(stamps)  # type: ignore[type-var]
    assert record.expires_at == record.created_at + 24 * 3600
    assert {record.failed_at, record.expired_at, record.cancelling_at, record.cancelled_at} == {None}


async def test_token_usage_is_summed_over_lines(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create([chat_line("a", "four"), chat_line("b", "three")]))
    assert record.usage is not None
    assert (record.usage.input_tokens, record.usage.output_tokens) == (9, 11)


async def test_only_batch_requests_are_deferrable(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores) as rig:
        await rig.ended(await rig.create(chat_lines(1)))
        [request] = rig.engine.requests
    assert request.deferrable
    assert request.stream_interval
    assert request.stream_interval > 1


async def test_batch_files_expire_as_requested(tokenizer: Tokenizer, stores: Stores) -> None:
    after = OutputExpiresAfter(anchor="created_at", seconds=3600)
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create(chat_lines(1), output_expires_after=after))
        file = await rig.files.get(record.output_file_id)
    assert file.expires_at == file.created_at + 3600
    assert (file.purpose, file.filename) == ("batch_output", f"{record.id}_output.jsonl")


async def test_cancelling_keeps_results_and_lists_the_rest(tokenizer: Tokenizer, stores: Stores) -> None:
    lines = [chat_line(f"done{i}") for i in range(5)] + [chat_line(f"long{i}", "x" * 400) for i in range(50)]
    async with running(tokenizer, stores, EchoEngine(delay=0.01)) as rig:
        batch_id = await rig.create(lines)
        while (await rig.batches.get(batch_id)).num_completed < 5 or len(rig.engine.requests) < 55:
            await asyncio.sleep(0.01)
        answer = await rig.services.batches.cancel(batch_id)
        record = await rig.ended(batch_id)
        output, errors = await rig.outcome(record)
    assert answer.status == "cancelling"
    assert record.status == "cancelled"
    assert {line["custom_id"] for line in output} == {f"done{i}" for i in range(5)}
    assert {line["custom_id"] for line in errors} == {f"long{i}" for i in range(50)}
    assert {(line["response"], line["error"]["code"]) for line in errors} == {(None, "batch_cancelled")}
    assert len(rig.engine.aborted) == 50


@pytest.mark.long
async def test_lines_not_run_in_time_expire(tokenizer: Tokenizer, stores: Stores) -> None:
    lines = [chat_line("quick"), *(chat_line(f"long{i}", "x" * 400) for i in range(10))]
    async with running(tokenizer, stores, EchoEngine(delay=0.02)) as rig:
        record = await rig.ended(await rig.create(lines, completion_window="2s"))
        output, errors = await rig.outcome(record)
    assert record.status == "expired"
    assert record.expired_at
    assert [line["custom_id"] for line in output] == ["quick"]
    assert {line["error"]["code"] for line in errors} == {"batch_expired"}
    assert len(errors) == 10


async def test_a_small_batch_overtakes_a_large_one(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores, EchoEngine(delay=0.002)) as rig:
        large = await rig.create(chat_lines(3000))
        await rig.reaches(large, "in_progress")
        small = await rig.ended(await rig.create(chat_lines(2)))
        assert small.status == "completed"
        assert (await rig.batches.get(large)).num_completed < 2000
        await rig.services.batches.cancel(large)
        await rig.ended(large)


async def test_each_state_change_is_logged_once(
    tokenizer: Tokenizer, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the wrong line."""
    caplog.set_level("INFO", "llmfw.api.batches")
    async with running(tokenizer, stores) as rig:
        await rig.ended(
            await rig.create([chat_line("a"), chat_line("a"), {**chat_line("b"), "method": "GET"}])
        )
        while "→ failed" not in caplog.text:  # a state is to be seen in the store before it is in the log
            await asyncio.sleep(0.01)
    changes = [message.partition(": ")[2] for message in caplog.messages if "→" in message]
    assert [change.partition(",")[0] for change in changes] == ["new → validating", "validating → failed"]
    assert re.search(r"0 failed: line 2: custom_id 'a' is that of an earlier line.*, and more$", changes[1])


async def test_the_log_reports_progress_and_rate(
    tokenizer: Tokenizer, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "llmfw.api.batches")
    async with running(tokenizer, stores, EchoEngine(delay=0.02), lease_s=0.15) as rig:
        await rig.ended(await rig.create(chat_lines(20)))
    first, *rest = [message for message in caplog.messages if " of 20 lines" in message]
    assert first.endswith(" failed")
    assert rest
    assert all(re.search(r": \d+ of 20 lines, 0 failed, \d+\.\d lines/s$", message) for message in rest)


async def test_a_wrong_file_reports_each_wrong_line(tokenizer: Tokenizer, stores: Stores) -> None:
    lines: list[Line] = [chat_line("a"), chat_line("a"), {**chat_line("b"), "method": "GET"}]
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create(lines))
        assert rig.engine.requests == []
    assert record.status == "failed"
    assert [(error.line, error.code) for error in record.errors] == [
        (2, "duplicate_custom_id"),
        (3, "invalid_method"),
    ]


@pytest.mark.parametrize("valid", [True, False])
async def test_a_batch_can_be_cancelled_before_validation(
    tokenizer: Tokenizer, stores: Stores, valid: bool
) -> None:
    async with running(tokenizer, stores) as rig:
        batch_id = await rig.create(chat_lines(3) if valid else b"nonsense\n")
        await rig.services.batches.cancel(batch_id)
        record = await rig.ended(batch_id)
        ids = await rig.ids(record)
    assert record.status == "cancelled"
    assert ids == (["c0", "c1", "c2"] if valid else [])
    assert [error.code for error in record.errors] == ([] if valid else ["invalid_json_line"])
    assert record.num_failed == len(ids)


async def test_very_many_messages_are_rendered_in_a_thread(
    tokenizer: Tokenizer, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    render, threads = JinjaChatTemplate.render, []

    def watched(*args: Any, **kwargs: Any) -> str:
        threads.append(threading.get_ident())
        return render(*args, **kwargs)

    monkeypatch.setattr(JinjaChatTemplate, "render", watched)
    many = chat_line("many", messages=[{"role": "user", "content": "hi"}] * 1001)
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create([many]))
        assert record.num_completed == 1
    assert threads
    assert threading.get_ident() not in threads


async def test_half_a_surrogate_fails_its_line_only(tokenizer: Tokenizer, stores: dict[str, Any]) -> None:
    async with running(tokenizer, stores) as rig:
        data = jsonl(chat_lines(2)).replace(b'"hi1"', rb'"hi\ud800"')
        record = await rig.ended(await rig.create(data))
        assert (record.status, record.num_completed, record.num_failed) == ("completed", 1, 1)
        _, [failed] = await rig.outcome(record)
    assert failed["response"]["status_code"] == 400
    assert r"the request's body has \ud800 at byte" in failed["response"]["body"]["error"]["message"]
