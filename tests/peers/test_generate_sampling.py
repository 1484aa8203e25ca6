"""The sampling parameters of SGLang's /generate: each does what it says, or is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..doubles.echo_engine import EOS, EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving
from .generate import events_of, generate, refusal_of, sampled

REFUSED: dict[str, Any] = {
    "audio_data": "x",
    "custom_logit_processor": "x",
    "extra_key": "x",
    "image_data": ["x"],
    "input_embeds": [[0.5]],
    "lora_path": "x",
    "max_thinking_tokens": 5,
    "require_reasoning": True,
    "return_entropy": True,
    "return_hidden_states": True,
    "return_prompt_token_ids": True,
    "return_routed_experts": True,
    "session_params": {"id": "x"},
    "video_data": "x",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


@pytest.mark.parametrize(
    ("field", "engine_field", "value"),
    [
        ("max_new_tokens", "max_tokens", 7),
        ("min_new_tokens", "min_tokens", 2),
        ("sampling_seed", "seed", 5),
        ("temperature", "temperature", 0.5),
        ("top_p", "top_p", 0.5),
        ("top_k", "top_k", 3),
        ("min_p", "min_p", 0.25),
        ("presence_penalty", "presence_penalty", 1.5),
        ("frequency_penalty", "frequency_penalty", 1.5),
        ("repetition_penalty", "repetition_penalty", 1.5),
        ("ignore_eos", "ignore_eos", True),
    ],
)
def test_a_parameter_reaches_the_engine(server: Served, field: str, engine_field: str, value: float) -> None:
    sampled(server, "ab", **{field: value})
    assert getattr(server.engine.requests[-1].sampling, engine_field) == value


def test_ends_and_biases_reach_the_engine(server: Served) -> None:
    sampled(server, "ab", stop_token_ids=[5], logit_bias={"7": 1.5}, ignore_eos=True)
    request = server.engine.requests[-1]
    assert (request.sampling.stop_token_ids, request.sampling.logit_bias) == ((5,), {7: 1.5})
    assert request.eos_token_ids == ()


def test_an_unlimited_text_may_fill_the_context(server: Served) -> None:
    sampled(server, "ab", max_new_tokens=None)
    assert server.engine.requests[-1].sampling.max_tokens == server.engine.info.max_model_len - 2
    sampled(server, "ab")
    assert server.engine.requests[-1].sampling.max_tokens == 128


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("json_schema", '{"type": "object"}'),
        ("json_schema", {"type": "object"}),
        ("regex", "a+"),
        ("ebnf", "x"),
    ],
)
def test_a_form_is_held_to(server: Served, field: str, value: Any) -> None:
    sampled(server, "ab", **{field: value})
    assert server.engine.requests[-1].grammar.kind == field


@pytest.mark.parametrize("stream", [False, True])
class TestEnds:
    def text(self, server: Served, stream: bool, **sampling: Any) -> tuple[str, Any]:
        body = {"text": "abcd 12 e", "sampling_params": sampling}
        reply = events_of(server, **body)[-1] if stream else generate(server, **body)
        return reply["text"], reply["meta_info"]["finish_reason"].get("matched")

    def test_a_pattern_ends_the_text(self, server: Served, stream: bool) -> None:
        assert self.text(server, stream, stop_regex=[r"q", r"\d+ e"]) == ("abcd ", r"\d+ e")
        assert self.text(server, stream, stop_regex=r"c.", stop="b") == ("a", "b")

    @pytest.mark.parametrize("field", ["no_stop_trim", "include_stop_str_in_output"])
    def test_an_untrimmed_text_keeps_its_end(self, server: Served, stream: bool, field: str) -> None:
        assert self.text(server, stream, stop="cd", **{field: True}) == ("abcd", "cd")
        assert self.text(server, stream, stop_regex="c[d]", **{field: True}) == ("abcd", "c[d]")
        assert self.text(server, stream, **{field: True}) == ("abcd 12 e", EOS)

    def test_early_stops_do_not_count(self, server: Served, stream: bool) -> None:
        assert self.text(server, stream, stop=["b", " "], min_new_tokens=2) == ("abcd", " ")


def test_special_tokens_are_shown_if_asked_for(server: Served) -> None:
    body = {"input_ids": [65, EOS, 66]}
    hidden = generate(server, **body)["text"]
    shown = generate(server, **body, sampling_params={"skip_special_tokens": False})["text"]
    assert len(shown) >= len(hidden)
    assert server.tokenizer.decode([EOS], skip_special_tokens=False) in shown


def test_spaces_between_special_tokens_are_refused(server: Served) -> None:
    params = {"spaces_between_special_tokens": False, "skip_special_tokens": False}
    error = refusal_of(server, text="a", sampling_params=params)
    assert error["param"] == "sampling_params.spaces_between_special_tokens"
    params["spaces_between_special_tokens"] = True
    assert generate(server, text="a", sampling_params=params)["text"] == "a"


def test_one_prompt_may_be_token_ids(server: Served) -> None:
    assert generate(server, input_ids=[65, 66])["output_ids"] == [65, 66, EOS]
    assert [each["output_ids"][0] for each in generate(server, input_ids=[[65], [66]])] == [65, 66]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_refused(server: Served, name: str) -> None:
    error = refusal_of(server, text="a", **{name: REFUSED[name]})
    assert (error["param"], error["code"]) == (name, "unsupported_parameter")


@pytest.mark.parametrize("field", [{"beam_width": 2}, {"stop_sequences": ["a"]}, {"min_tokens": 2}])
def test_parameters_of_others_are_refused(server: Served, field: dict[str, Any]) -> None:
    [name] = field
    error = refusal_of(server, text="a", sampling_params=field)
    assert (error["param"], error["code"]) == (f"sampling_params.{name}", "unsupported_parameter")
