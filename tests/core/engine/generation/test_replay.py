"""Recorded steps give the same tokens when they are computed again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.replay import replay
from llmfw.core.step.recording import read_recording

from ....doubles.trie_grammar import FIRST_BYTE, one_of
from .running import build_engine, generate, random_prompts, registry
from .tiny_models import SERVABLE, VOCAB_SIZE, save_byte_tokenizer, save_random_model

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
        asks = {"logprobs": 3, "prompt_logprobs": 2} if i == 7 else {}
        found.append(
            Request(id=str(i), prompt=prompt, sampling=sampling, eos_token_ids=(1,), grammar=grammar, **asks)
        )
    return found


@pytest.mark.parametrize("overlap", [False, True])
def test_recorded_steps_give_the_same_tokens(llama: Path, tmp_path: Path, overlap: bool) -> None:
    path = tmp_path / "steps"
    settings = {"chunked_prefill_size": 24, "max_total_tokens": 150, "schedule_conservativeness": 0.05}
    engine = build_engine(llama, record_steps=str(path), overlap=overlap, **settings)
    outcomes = generate(engine, requests(), seed=1)
    steps = list(replay(path, registry()))
    assert engine.stats().num_retractions > 0
    assert sum(len(outcome.token_ids) for outcome in outcomes) > 100
    assert not [each for each in steps if each.differences]
    _, again = read_recording(path)
    assert [each.recorded.output.token_ids for each in steps] == [each.output.token_ids for each in again]


def test_a_step_that_differs_is_named(llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    engine = build_engine(llama, record_steps=str(path))
    generate(engine, requests()[:2])
    kind, changes = SERVABLE["llama"]
    other = save_random_model(tmp_path / "other", kind, changes | {"rms_norm_eps": 0.5})
    assert any(each.differences for each in replay(path, registry(), model=str(other)))


def test_a_step_that_was_cut_short_is_left_out(llama: Path, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    generate(build_engine(llama, record_steps=str(path)), requests()[:2])
    whole = len(list(read_recording(path)[1]))
    path.write_bytes(path.read_bytes()[: -random.Random(0).randrange(1, 30)])
    assert len(list(read_recording(path)[1])) == whole - 1


@pytest.mark.parametrize("content", [b"", b"\x01\x00\x00\x00\xc1", b"GGUF" * 30])
def test_what_is_no_recording_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is no recording of steps"):
        read_recording(path)


def test_an_existing_file_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "steps"
    path.touch()
    with pytest.raises(ConfigError, match="File exists"):
        build_engine("nowhere", record_steps=str(path))
