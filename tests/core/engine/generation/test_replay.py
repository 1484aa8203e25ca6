"""Recorded steps give the same tokens when they are computed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.replay import replay
from llmfw.core.model.models import load_model
from llmfw.core.step.recording import RecordedStep, StepWriter, read_recording

from ....doubles.trie_grammar import FIRST_BYTE, one_of
from ....length import of_length
from .running import build_engine, generate, random_prompts, registry
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model

COLUMNS = ("tokens", "sources", "rows", "starts", "counts", "num_sampled", "page_places", "pages")
ASKS: dict[str, Any] = {
    "logprobs": 3,
    "prompt_logprobs": 2,
    "logprob_token_ids": (4, 5),
    "prompt_logprob_token_ids": (6,),
}
KINDS: list[dict[str, object]] = [
    {"temperature": 0.0},
    {"temperature": 1.0, "seed": 5},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "seed": 6},
    {"logit_bias": {7: 4.0}, "min_tokens": 9, "top_p": 0.8, "seed": 7},
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])
    save_byte_tokenizer(folder, FIRST_BYTE)
    return folder


def requests() -> list[Request]:
    """Return requests of every kind, among them some with log probabilities, grammars, and a long common prefix."""
    found = []
    for i, prompt in enumerate(random_prompts(12, VOCAB_SIZE)):
        sampling = SamplingParams(max_tokens=20, **KINDS[i % 4])  # type: ignore[arg-type]
        grammar = one_of("red", "blue") if i == 5 else None
        asks = ASKS if i == 7 else {}
        found.append(
            Request(id=str(i), prompt=prompt, sampling=sampling, eos_token_ids=(1,), grammar=grammar, **asks)
        )
    return found


@pytest.mark.parametrize("overlap", [False, True])
def test_recorded_steps_give_the_same_tokens(llama: Path, tmp_path: Path, overlap: bool) -> None:
    path = tmp_path / "steps"
    others = {"chunked_prefill_size": 24, "max_total_tokens": 150, "schedule_conservativeness": 0.05}
    engine = build_engine(llama, record_steps=str(path), overlap=overlap, **others)
    outcomes = generate(engine, requests(), seed=1)
    steps = list(replay(path, registry()))
    assert engine.stats().num_retractions > 0
    assert sum(len(outcome.token_ids) for outcome in outcomes) > 100
    assert not [each for each in steps if each.differences]
    _, again = read_recording(path)
    assert [each.recorded.output.token_ids for each in steps] == [each.output.token_ids for each in again]


def test_a_differing_step_is_named(llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    engine = build_engine(llama, record_steps=str(path))
    generate(engine, requests()[:2])
    kind, changes = SERVABLE["llama"]
    other = save_random_model(tmp_path / "other", kind, changes | {"rms_norm_eps": 0.5})
    assert any(each.differences for each in replay(path, registry(), model=str(other)))


@pytest.fixture(scope="module")
def recording(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "steps"
    generate(build_engine(llama, record_steps=str(path), max_total_tokens=256), requests()[:6])
    return path


@pytest.fixture(scope="module")
def loaded(llama: Path) -> Iterator[None]:
    """Load the model once for all replays of the module: they only read it."""
    config = EngineConfig(model=str(llama), device="cpu", dtype="float32", context_length=256)
    model = load_model(config, torch.device("cpu"), registry())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llmfw.core.engine.generation.replay.load_model", lambda *args: model)
        yield


def changed(recording: Path, path: Path, number: int, **columns: Any) -> Path:
    """Write a recording whose step `number` has other columns, and checksums that fit them."""
    header, steps = read_recording(recording)
    path.unlink(missing_ok=True)
    writer = StepWriter(str(path))
    writer.start(header)
    for i, recorded in enumerate(steps, 1):
        step = msgspec.structs.replace(recorded.step, **columns) if i == number else recorded.step
        writer.add(RecordedStep(step, recorded.masks, recorded.output))
    return path


def verdict(path: Path) -> str:
    """Return what is wrong with a recording, or "equal" with its number of steps."""
    try:
        steps = list(replay(path, registry()))
    except ConfigError as error:
        return str(error).replace("\n", " LINE ")
    return "differs" if any(each.differences for each in steps) else f"equal {len(steps)}"


def test_a_recording_without_steps_is_reported(loaded: None, recording: Path, tmp_path: Path) -> None:
    header, _ = read_recording(recording)
    StepWriter(str(tmp_path / "steps")).start(header)
    assert "holds no steps" in verdict(tmp_path / "steps")


def test_a_truncated_file_is_reported(loaded: None, recording: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    whole = len(list(read_recording(recording)[1]))
    path.write_bytes(recording.read_bytes()[:-7])
    assert f"{path} ends within step {whole}, " in verdict(path)
    assert verdict(path).endswith(f"it has {whole - 1} whole steps")


@pytest.mark.parametrize("value", [-(2**63), -9, -2, 10**5, 2 * 10**9, 10**12, 2**62])
@pytest.mark.parametrize(
    "column", ["tokens", "sources", "rows", "starts", "counts", "num_sampled", "page_places", "pages"]
)
def test_a_wrong_column_is_named(
    loaded: None, recording: Path, tmp_path: Path, column: str, value: int
) -> None:
    old = getattr(next(read_recording(recording)[1]).step, column)
    new = np.full_like(old, min(value, np.iinfo(old.dtype).max) if value > 0 else max(value, -(2**31)))
    path = changed(recording, tmp_path / "steps", 1, **{column: new})
    assert f"{path} is damaged at step 1: {column}" in verdict(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_single", 10**9), ("num_sampling", -1), ("row_starts", "prompt_len"), ("row_starts", "row")],
)
def test_a_wrong_number_is_named(
    loaded: None, recording: Path, tmp_path: Path, field: str, value: Any
) -> None:
    if isinstance(value, str):
        starts = next(read_recording(recording)[1]).step.row_starts
        field, new = f"{field}.{value}", tuple(msgspec.structs.replace(s, **{value: 10**12}) for s in starts)
        path = changed(recording, tmp_path / "steps", 1, row_starts=new)
    else:
        path = changed(recording, tmp_path / "steps", 1, **{field: value})
    assert f"{path} is damaged at step 1: {field}" in verdict(path)


@pytest.mark.parametrize("name", ["logprob_token_ids", "prompt_logprob_token_ids"])
@pytest.mark.parametrize("ids", [(VOCAB_SIZE,), (-1,), (5,) * 129])
def test_wrong_token_ids_are_named(
    loaded: None, recording: Path, tmp_path: Path, name: str, ids: tuple[int, ...]
) -> None:
    starts = next(read_recording(recording)[1]).step.row_starts
    new = tuple(msgspec.structs.replace(start, **{name: ids}) for start in starts)  # type: ignore[arg-type]
    path = changed(recording, tmp_path / "steps", 1, row_starts=new)
    assert f"row_starts.{name} has" in verdict(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_pages", 10**12), ("num_pages", -1), ("max_running", 10**9), ("max_model_len", 0)],
)
def test_an_impossible_capacity_is_named(
    loaded: None, recording: Path, tmp_path: Path, field: str, value: int
) -> None:
    header, steps = read_recording(recording)
    list(steps)
    writer = StepWriter(str(tmp_path / "steps"))
    writer.start(msgspec.structs.replace(header, capacity=header.capacity | {field: value}))
    assert f"its capacity has {field} {value}; it must be 1 to" in verdict(tmp_path / "steps")


@settings(
    max_examples=of_length(25, 250),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_random_damage_is_always_detected(
    loaded: None, recording: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Bytes are changed, cut out, doubled or exchanged; the checksums notice each, as far as no step is lost whole at the end."""
    content = bytearray(recording.read_bytes())
    first = data.draw(st.integers(0, len(content) - 2))
    last = data.draw(st.integers(first + 1, min(len(content) - 1, first + 2000)))
    piece = bytes(content[first:last])
    content[first:last] = data.draw(st.sampled_from([b"", piece * 2, piece[::-1], b"\xff" * len(piece)]))
    if bytes(content) == recording.read_bytes():
        return
    (path := tmp_path / "steps").write_bytes(content)
    assert "equal" not in (found := verdict(path))
    assert " LINE " not in found


@given(data=st.data())
@settings(
    max_examples=of_length(30, 600),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_random_numbers_never_crash_the_process(
    loaded: None, recording: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """The checksums fit: only the checks of the columns stand between the numbers and the memory."""
    steps = [recorded.step for recorded in read_recording(recording)[1]]
    number = data.draw(st.integers(1, len(steps)))
    step = steps[number - 1]
    name = data.draw(st.sampled_from([n for n in COLUMNS if len(getattr(step, n))]))
    column = getattr(step, name).copy()
    bounds = np.iinfo(column.dtype)
    near = st.integers(-3, 300) | st.integers(int(bounds.min), int(bounds.max))
    column[data.draw(st.integers(0, len(column) - 1))] = data.draw(near)
    assert verdict(changed(recording, tmp_path / "steps", number, **{name: column}))


@pytest.mark.parametrize("content", [b"", b"\x01\x00\x00\x00\xc1", b"GGUF" * 30])
def test_invalid_recordings_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not a recording of steps"):
        read_recording(path)


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.touch()
    with pytest.raises(ConfigError, match="File exists"):
        build_engine("nowhere", record_steps=str(path))
