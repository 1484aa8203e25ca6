"""The state machine: whatever happens in whatever order, a job moves as OpenAI's does, and its time stamps say how."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Batch

from llmfw.api.batches import states
from llmfw.api.batches.view import view
from llmfw.core.interfaces.batch_store import ENDED, BatchError, BatchRecord, BatchUsage

WRONG = [BatchError(code="invalid_json_line", message="no", line=1)]
EVENTS = {
    "accepted": lambda r, now: states.accepted(r, 3, "demo", {}, now),
    "rejected": lambda r, now: states.rejected(r, WRONG, now),
    "cancelling": states.cancelling,
    "counted": lambda r, now: states.counted(r, 3, "demo"),
    "done": lambda r, now: states.finalizing(r, "completed", now),
    "expired": lambda r, now: states.finalizing(r, "expired", now),
    "lost": lambda r, now: states.finalizing(r, "failed", now, WRONG),
    "ended": lambda r, now: states.ended(r, now, BatchUsage()),
}


def new_record(**fields: object) -> BatchRecord:
    known: dict[str, object] = {
        "id": "batch_1",
        "endpoint": "/v1/embeddings",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "status": "validating",
        "created_at": 10,
        "expires_at": 20,
    }
    return BatchRecord(**(known | fields))  # type: ignore[arg-type]


def stamps(record: BatchRecord) -> dict[str, int]:
    """Return the time stamps that are set, but for those of its making."""
    found = {name: getattr(record, name) for name in record.__struct_fields__ if name.endswith("_at")}
    return {k: v for k, v in found.items() if v is not None and k not in ("created_at", "expires_at")}


@given(st.lists(st.sampled_from(sorted(EVENTS)), max_size=30))
def test_each_transition_is_allowed_and_timestamped(names: list[str]) -> None:
    record, now = new_record(), 10
    for name in names:
        now += 1
        try:
            new = EVENTS[name](record, now)
        except AssertionError:
            continue
        if new.status != record.status:
            assert new.status in states.NEXT[record.status]
            assert stamps(new) == stamps(record) | {f"{new.status}_at": now}
        else:
            assert stamps(new) == stamps(record)
        record = new
        Batch.model_validate(msgspec.to_builtins(view(record)), strict=True)
    assert list(stamps(record).values()) == [s for s in stamps(record).values() if s > 10]
    assert len(ENDED & {name.removesuffix("_at") for name in stamps(record)}) == (record.status in ENDED)


def test_timestamps_never_decrease() -> None:
    running = states.accepted(new_record(), 3, "demo", {}, 5)
    made = states.finalizing(running, "completed", 30)
    ended = states.ended(made, 7, BatchUsage())
    assert stamps(ended) == {"in_progress_at": 10, "finalizing_at": 30, "completed_at": 30}


@pytest.mark.parametrize("status", sorted(states.NEXT))
def test_unfinished_batches_can_be_cancelled_once(status: str) -> None:
    assert states.may_be_cancelled(status) == (status not in ENDED | {"cancelling"})


def finished(end: str, **counts: int) -> BatchRecord:
    """Return a job whose files are to be written."""
    running = states.accepted(new_record(), 3, "demo", {}, 11)
    made = (
        states.cancelling(running, 12) if end == "cancelled" else states.finalizing(running, "completed", 12)
    )
    return msgspec.structs.replace(made, **counts)


def test_file_ids_survive_a_cancel() -> None:
    first = finished("completed")
    then = states.cancelling(first, 13)
    assert first.output_file_id != first.error_file_id
    assert (then.output_file_id, then.error_file_id) == (first.output_file_id, first.error_file_id)


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_only_ended_batches_show_nonempty_files(end: str) -> None:
    record = finished(end, num_completed=2)
    assert (view(record).output_file_id, view(record).error_file_id) == (None, None)
    ended = view(states.ended(record, 30, BatchUsage()))
    assert (ended.output_file_id, ended.error_file_id) == (record.output_file_id, None)
