"""Offline use: the demo model in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.llm import LLM
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError, ContextLengthError, ModelError, RequestError
from llmfw.core.base.request import SamplingParams
from llmfw.core.engine.generation.policy_choice import PolicyChoice
from llmfw.core.plugin.registry import Registry

GREEDY = SamplingParams(temperature=0, max_tokens=12)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("demo", max_total_tokens=4096) as llm:
        yield llm


def test_prompts_are_continued_in_order(llm: LLM) -> None:
    alone = [llm.generate(prompt, GREEDY)[0] for prompt in ("The capital of France", "Once upon a time")]
    together = llm.generate(["The capital of France", "Once upon a time"], GREEDY)
    assert [output.text for output in together] == [output.text for output in alone]


def test_an_output_has_tokens_reason_and_counts(llm: LLM) -> None:
    [output] = llm.generate([[10, 11, 12]], SamplingParams(max_tokens=5, ignore_eos=True))
    assert len(output.token_ids) == 5
    assert (output.finish_reason, output.prompt_tokens) == ("length", 3)


def test_logprobs_are_returned_on_request(llm: LLM) -> None:
    [output] = llm.generate([[10, 11, 12]], GREEDY, logprobs=2, prompt_logprobs=0)
    assert output.logprobs is not None
    assert [found.top_ids[0] for found in output.logprobs] == output.token_ids
    assert [found.top_logprobs[0] for found in output.logprobs] == [
        found.logprob for found in output.logprobs
    ]
    assert [found.top_ids for found in output.prompt_logprobs or []] == [[], []]
    [output] = llm.generate([[10, 11, 12]], GREEDY)
    assert output.logprobs is output.prompt_logprobs is None


def test_a_chat_is_answered(llm: LLM) -> None:
    [one] = llm.chat([{"role": "user", "content": "Hello"}], GREEDY)
    two = llm.chat([[{"role": "user", "content": "Hello"}]] * 2, GREEDY)
    assert [output.text for output in two] == [one.text] * 2
    assert two[1].cached_tokens > 0


def test_sampling_fields_are_no_template_arguments(llm: LLM) -> None:
    """They would be ignored in silence, as templates ignore what they do not know."""
    with pytest.raises(RequestError, match=r"pass it in sampling=SamplingParams\(max_tokens=…\)"):
        llm.chat([{"role": "user", "content": "Hello"}], max_tokens=4, enable_thinking=False)


async def test_it_works_inside_a_running_event_loop(llm: LLM) -> None:
    assert llm.generate("Hello", GREEDY)[0].token_ids


def test_named_tokens_are_scored_on_request(llm: LLM) -> None:
    [output] = llm.generate([[10, 11, 12]], GREEDY, logprobs=2, logprob_token_ids=[7, 9])
    assert [found.given_ids for found in output.logprobs or []] == [[7, 9]] * len(output.token_ids)
    with pytest.raises(RequestError, match="logprobs is not set"):
        llm.generate("Hello", GREEDY, logprob_token_ids=[7])


@pytest.fixture(scope="module")
def with_fields() -> Iterator[LLM]:
    """It has the fields that dry needs, and one more."""
    fields = "deadline_ms"
    with LLM("demo", max_total_tokens=4096, logits_processors="dry", request_fields=fields) as llm:
        yield llm


def test_processors_get_the_request_fields(with_fields: LLM) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    strong = {"dry_multiplier": 100.0, "dry_allowed_length": 1}
    [plain] = with_fields.generate("Once upon a time", sampling)
    [changed] = with_fields.generate("Once upon a time", sampling, fields=strong)
    pairs = list(zip(plain.token_ids, plain.token_ids[1:], strict=False))
    assert len(set(pairs)) < len(pairs)
    pairs = list(zip(changed.token_ids, changed.token_ids[1:], strict=False))
    assert len(set(pairs)) == len(pairs)
    message = [{"role": "user", "content": "Hello, hello, hello"}]
    [plain], [changed] = (with_fields.chat(message, sampling, fields=each) for each in (None, strong))
    assert plain.token_ids != changed.token_ids


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dry": 1}, "no active request field 'dry'; active: .*dry_multiplier"),
        ({"dry_multiplier": "much"}, "dry_multiplier: Expected `float`"),
        ({"deadline_ms": -1}, "deadline_ms"),
    ],
)
def test_wrong_fields_are_refused(with_fields: LLM, fields: dict[str, object], says: str) -> None:
    with pytest.raises(RequestError, match=says):
        with_fields.generate("Hello", GREEDY, fields=fields)


def test_fields_need_to_be_named_first(llm: LLM) -> None:
    with pytest.raises(RequestError, match="'deadline_ms'; name it in LLM's request_fields"):
        llm.generate("Hello", GREEDY, fields={"deadline_ms": 9})
    with pytest.raises(ConfigError, match="unknown request field 'nope'"):
        LLM("demo", request_fields="nope")


def test_no_prompts_give_no_outputs(llm: LLM) -> None:
    assert llm.generate([]) == []


def test_wrong_requests_raise_explained_errors(llm: LLM) -> None:
    with pytest.raises(ContextLengthError, match="5000"):
        llm.generate("Hello", SamplingParams(max_tokens=5000))
    with pytest.raises(RequestError, match="empty"):
        llm.chat([])


def test_wrong_settings_suggest_a_correction() -> None:
    with pytest.raises(ConfigError, match=r"'atention'; known: .*attention"):
        LLM("demo", atention="torch")
    with pytest.raises(
        ConfigError, match=r"--max-total-tokens is .many.; it must be a whole number, 1 or more"
    ):
        LLM("demo", max_total_tokens="many")
    with pytest.raises(ConfigError, match=r"--policy is 3; it must be text"):
        LLM("demo", policy=3)
    with pytest.raises(ConfigError, match=r"--chunked-prefill-size is 0; give 1 or more, or -1"):
        LLM("demo", chunked_prefill_size=0)
    with pytest.raises(
        ConfigError, match=r"there is no component option 'polcy.x'; options are named .*policy"
    ):
        LLM("demo", options={"polcy.x": 1})
    with pytest.raises(ModelError, match="no/where/at/all"):
        LLM("no/where/at/all")


@pytest.mark.parametrize(
    "settings",
    [{"options": {1: "x"}}, {"options": ["a=b"]}, {"disabled_plugins": "policies"}, {"disabled_plugins": 5}],
)
def test_settings_of_wrong_types_are_named(settings: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "llmfw.toml"
    file.write_text('policy = "lpm"\n')
    for more in ({}, {"config": file}):
        with pytest.raises(ConfigError, match=r"-o is|--no-plugin is"):
            LLM("demo", **settings, **more)  # type: ignore[arg-type]


FILE = """
model = "demo"
port = 8000
max-total-tokens = 2048
max-running-requests = 3
policy = "fcfs"
no-plugin = ["bench"]
disable-overlap-schedule = true

[options.policy]
speed = 1
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[EngineConfig]:
    """The configs of the engines that were to be built; none is."""
    configs: list[EngineConfig] = []

    def keep(config: EngineConfig, registry: Registry) -> None:
        configs.append(config)
        PolicyChoice(registry, config.policy, config.options)
        raise NotImplementedError

    monkeypatch.setattr("llmfw.core.engine.process.build.build_engine", keep)
    return configs


def test_arguments_beat_the_server_s_config_file(
    asked: list[EngineConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llmfw.toml").write_text(FILE.replace("speed", "max_overtaken").replace("fcfs", "lpm"))
    monkeypatch.setenv("LLMFW_MAX_RUNNING_REQUESTS", "9")  # is the server's
    with pytest.raises(NotImplementedError):
        LLM(config=tmp_path / "llmfw.toml", max_total_tokens=1024, options={"drafter.min_ngram": 2})
    [config] = asked
    assert (config.max_total_tokens, config.max_running_requests) == (1024, 3)
    assert (config.disabled_plugins, config.overlap) == (("bench",), False)
    assert config.options == {"policy.max_overtaken": 1, "drafter.min_ngram": 2}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", r"'fcfs' has no option 'speed'.*policy.speed is set in .*llmfw.toml"),
        ("prot = 1", r"'prot' in .*llmfw.toml: there is no such setting; did you mean 'port'"),
        ("page-size = 0", r"'page-size' in .*llmfw.toml: it is 0; it must be a whole number, 1 or more"),
        ("task = 'embed'", "task is 'embed'"),
    ],
)
def test_config_file_errors_name_their_place(
    line: str, says: str, asked: list[EngineConfig], tmp_path: Path
) -> None:
    (tmp_path / "llmfw.toml").write_text(line + FILE)
    with pytest.raises(ConfigError, match=says):
        LLM(config=str(tmp_path / "llmfw.toml"))
