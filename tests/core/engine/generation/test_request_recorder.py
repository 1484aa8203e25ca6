"""What is recorded is when requests came and how long they were, in the form that the simulator reads; and no text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.request_recorder import RequestRecorder
from llmfw.core.schedule.sequence import SequenceState
from llmfw.plugins.simulator.tokens import output_of, prompt_of
from llmfw.plugins.simulator.trace import TraceRequest, read_trace

from .running import build_engine
from .tiny_models import SERVABLE, save_random_model


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def sequence(number: int, prompt: list[int], output: list[int], **fields: object) -> SequenceState:
    """Return a sequence that has its output."""
    sampling = SamplingParams(max_tokens=64)
    seq = SequenceState(Request(id=f"r{number}", prompt=prompt, sampling=sampling, **fields), number)
    for token in output:
        seq.append(token)
    return seq


def record(path: Path, sequences: list[SequenceState]) -> list[TraceRequest]:
    """Record sequences that come 250 ms after each other and end in the opposite order; read them back."""
    clock = Clock()
    recorder = RequestRecorder(str(path), 4, clock)
    for seq in sequences:
        clock.now += 0.25
        recorder.arrived(seq)
    for seq in reversed(sequences):
        recorder.ended(seq, "stop")
    return read_trace(path)


PROMPT = list(range(40))
OUTPUT = list(range(100, 150))


def test_times_and_lengths_are_read_back(tmp_path):
    first, second = record(
        tmp_path / "r.jsonl",
        [sequence(0, PROMPT, OUTPUT, priority=3, tenant="x"), sequence(1, PROMPT[:7], [], tenant="y")],
    )
    assert (first.prompt_len, first.output_len, first.max_tokens) == (40, 50, 64)
    assert (first.page_size, second.page_size) == (4, 4)
    assert (first.priority, first.tenant, second.tenant, second.arrival_s) == (3, "0", "1", 0.25)
    assert (second.prompt_len, second.output_len) == (7, 1)  # it was given up before it had a token


@pytest.mark.parametrize(
    ("prompt", "shared"),
    [
        (PROMPT, 32),  # the block in which the prompt ends is that of the answer, too
        (PROMPT + OUTPUT + [7] * 20, 80),
        (PROMPT[:20] + [9] * 20, 16),
        ([9, *PROMPT], 0),
    ],
)
def test_traced_prompts_share_the_same_blocks(tmp_path, prompt, shared):
    first, second = record(tmp_path / "r.jsonl", [sequence(0, PROMPT, OUTPUT), sequence(1, prompt, [5] * 9)])
    a, b = [*prompt_of(first).tolist(), *output_of(first)], prompt_of(second).tolist()
    size = min(len(a), len(b))
    assert next((i for i in range(size) if a[i] != b[i]), size) == shared


def test_salts_and_starts_hash_differently(tmp_path):
    sequences = [sequence(0, PROMPT, []), sequence(1, PROMPT, [], cache_salt="s")]
    first, second = record(tmp_path / "r.jsonl", sequences)
    assert not set(first.blocks) & set(second.blocks)
    record(tmp_path / "again.jsonl", sequences)
    ids = [
        {each for line in path.read_text().splitlines() for each in msgspec.json.decode(line)["hash_ids"]}
        for path in tmp_path.iterdir()
    ]
    assert not ids[0] & ids[1]


def test_an_existing_recording_is_not_overwritten(tmp_path):
    (tmp_path / "r.jsonl").write_text("precious")
    with pytest.raises(ConfigError, match=r"--record-requests .*r\.jsonl cannot be made: File exists"):
        RequestRecorder(str(tmp_path / "r.jsonl"), 1)


def test_others_cannot_read_a_recording(tmp_path):
    RequestRecorder(str(tmp_path / "r.jsonl"), 1)
    assert (tmp_path / "r.jsonl").stat().st_mode & 0o777 == 0o600


def test_an_engine_records_finished_and_aborted_requests(tmp_path):
    folder = save_random_model(tmp_path / "model", *SERVABLE["llama"])
    engine = build_engine(folder, record_requests=str(tmp_path / "r.jsonl"), page_size=4)
    for request_id, output in (("a", 5), ("b", 50)):
        sampling = SamplingParams(temperature=0, max_tokens=output)
        engine.add(Request(id=request_id, prompt=list(range(2, 30)), sampling=sampling))
    while engine.stats().num_running + engine.stats().num_waiting != 1:
        engine.step()
    engine.abort("b")
    trace = read_trace(tmp_path / "r.jsonl")
    assert sorted(request.max_tokens for request in trace) == [5, 50]
    assert all(request.output_len == 5 and request.prompt_len == 28 for request in trace)
    assert all(request.page_size == 4 for request in trace)
    assert trace[0].blocks[0] == trace[1].blocks[0]
