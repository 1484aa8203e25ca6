"""A batch store that does not do what it says holds up its own jobs only, and the log says so."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from llmfw.core.interfaces.tokenizer import Tokenizer

from .rig import chat_lines, running


@pytest.mark.parametrize("answer", [True, False])
async def test_an_idle_update_blocks_no_other_request(
    tokenizer: Tokenizer, stores: dict[str, Any], answer: bool, caplog: pytest.LogCaptureFixture
) -> None:
    real, calls = stores["batches"].update, 0

    async def update(record: Any, *, expected: str) -> bool:
        nonlocal calls
        calls += 1
        return answer

    async with running(tokenizer, stores) as rig:
        stores["batches"].update = update
        batch_id = await rig.create(chat_lines(2))
        begun = time.monotonic()
        await asyncio.sleep(0.3)
        assert time.monotonic() - begun < 3
        assert calls < 50
        stores["batches"].update = real
        assert (await rig.ended(batch_id)).status in ("completed", "failed")
    assert "replace" in caplog.text
    assert "but it is still 'validating'" in caplog.text


async def test_lost_results_fail_a_batch(tokenizer: Tokenizer, stores: dict[str, Any]) -> None:
    real = stores["batches"].results

    def results(batch_id: str) -> Any:
        found = real(batch_id)
        add = found.add

        async def first_only(added: Any) -> None:
            await add([each for each in added if each.line == 1])

        found.add = first_only
        return found

    stores["batches"].results = results
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(await rig.create(chat_lines(3)))
    assert record.status == "failed"
    assert "counts 1 results" in record.errors[0].message
