"""Models that count positions from an offset of their own, such as RoBERTa, are served as transformers computes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.model.probe.own_positions import OwnPositions, keep_own_positions, own_positions
from llmfw.core.model.probe.positions import check_positions

from ....length import also
from ....models.checkpoint import save_checkpoint
from ....models.tiny_config import tiny_config
from ....models.trial import build_engine, load_reference, reference_logprobs, try_config
from .test_probe import build

MAIN = ("roberta", "xlm-roberta-xl")
OTHER = ("camembert", "data2vec-text", "roberta-prelayernorm", "xlm-roberta", "xmod")


@pytest.mark.parametrize("model_type", [*MAIN, *also(OTHER)])
def test_a_type_is_equal_to_transformers(model_type: str, tmp_path: Path) -> None:
    verdict = try_config(tiny_config(model_type), tmp_path, max_tokens=4)
    assert verdict.outcome == "equal", verdict.reason


@pytest.mark.parametrize("padding", [1, 5, 70])
def test_the_offset_follows_the_padding_token(padding: int, tmp_path: Path) -> None:
    config = tiny_config(
        "roberta", pad_token_id=padding, max_position_embeddings=200, tie_word_embeddings=False
    )
    folder = save_checkpoint(config, tmp_path)
    engine, reference = build_engine(folder), load_reference(folder)
    prompt = [token for token in range(2, 60) if token != padding]
    tokens = _continue(engine, prompt)
    assert tokens[0] == int(reference_logprobs(reference, prompt)[-1].argmax())
    expected = reference_logprobs(reference, prompt + tokens)[len(prompt) - 1 : -1]
    assert tokens == expected.argmax(dim=1).tolist()


def test_positions_from_zero_are_left_alone() -> None:
    for model_type in ("gpt2", "bert", "llama"):
        model = build(model_type)
        keep_own_positions(model)
        assert own_positions(model) is None


def test_an_offset_is_added_to_given_positions() -> None:
    model = build("roberta", pad_token_id=3, max_position_embeddings=64)
    keep_own_positions(model)
    assert own_positions(model) == OwnPositions(offset=4, num_positions=60, uncounted_token=3)
    check_positions(model)
    ids = torch.tensor([[5, 6, 7, 8]])
    rows: list[torch.Tensor] = []
    table = model.roberta.embeddings.position_embeddings
    table.register_forward_pre_hook(lambda _, args: rows.append(args[0]))
    with pytest.raises(TypeError, match="without llmfw_step"):
        model(input_ids=ids, position_ids=torch.tensor([[0, 1, 0, 9]]))
    assert rows[0].tolist() == [[4, 5, 4, 13]]


def test_the_context_excludes_rows_before_the_offset(tmp_path: Path) -> None:
    config = tiny_config("roberta", pad_token_id=1, max_position_embeddings=128)
    folder = save_checkpoint(config, tmp_path)
    with pytest.raises(ConfigError, match="--context-length is 127; this model can be served with 2 to 126"):
        build_engine(folder, context_length=127)
    engine = build_engine(folder, context_length=None)
    assert engine.info.max_model_len == 126
    assert len(_continue(engine, [5] * 120, max_tokens=6)) == 6


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    config = tiny_config("roberta", pad_token_id=1)
    return build_engine(save_checkpoint(config, tmp_path_factory.mktemp("roberta")))


def test_a_prompt_with_the_padding_token_is_refused(engine: Engine) -> None:
    sampling = SamplingParams(max_tokens=2)
    with pytest.raises(RequestError, match=r"prompt holds the model's padding token, 1, .* leave it out"):
        engine.add(Request(id="1", prompt=[5, 1, 6], sampling=sampling))
    with pytest.raises(RequestError, match=r"output holds the model's padding token, 1"):
        engine.add(Request(id="2", prompt=[5, 6], output=(7, 1), sampling=sampling))


def test_an_output_ends_at_the_padding_token(engine: Engine) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=5, logit_bias={1: 100.0})
    engine.add(Request(id="3", prompt=[5, 6, 7], sampling=sampling))
    events = [event for event in _events(engine) if event.id == "3"]
    assert [token for event in events for token in event.token_ids] == [1]
    assert events[-1].finish_reason is FinishReason.STOP


def _continue(engine: Engine, prompt: list[int], max_tokens: int = 8) -> list[int]:
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
    engine.add(Request(id="0", prompt=prompt, sampling=sampling))
    return [token for event in _events(engine) for token in event.token_ids]


def _events(engine: Engine) -> list:
    events = []
    while engine.has_work:
        events += engine.step()
    return events
