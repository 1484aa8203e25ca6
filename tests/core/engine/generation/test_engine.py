"""The whole engine with real models, against transformers' own generation."""

from __future__ import annotations

import importlib.resources
import random
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from llmfw.core.base.errors import ConfigError, ContextLengthError, ModelError, RequestError
from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.model.device.devices import has_fast_bfloat16

from ....length import also, also_each, of_length
from .running import GREEDY, build_engine, generate_alone, random_prompts, run
from .tiny_models import DIFFERENT, REFUSED, SERVABLE, VOCAB_SIZE, save_random_model

DEMO = importlib.resources.files("llmfw.plugins.model_demo") / "weights"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("llama"), *SERVABLE["llama"])


@pytest.mark.parametrize("family", [*DIFFERENT, *also(sorted(SERVABLE.keys() - set(DIFFERENT)))])
def test_greedy_tokens_equal_transformers(family: str, tmp_path: Path) -> None:
    folder = save_random_model(tmp_path, *SERVABLE[family])
    prompts = random_prompts(of_length(4, 8), VOCAB_SIZE)
    expected = generate_alone(folder, prompts, 24, eos=1)
    engine = build_engine(folder, chunked_prefill_size=16, max_total_tokens=260)
    assert run(engine, prompts, seed=1) == expected


@pytest.mark.parametrize("family", REFUSED)
def test_unsupported_models_are_refused(family: str, tmp_path: Path) -> None:
    config_class, changes, reason = REFUSED[family]
    folder = save_random_model(tmp_path, config_class, changes)
    with pytest.raises(ModelError, match=reason):
        build_engine(folder)


MIXED = [
    SamplingParams(max_tokens=40, temperature=0),
    SamplingParams(max_tokens=40, seed=1, top_p=0.9),
    SamplingParams(max_tokens=40, seed=2, frequency_penalty=0.5, presence_penalty=0.5, top_k=20),
    SamplingParams(max_tokens=40, seed=3, repetition_penalty=1.3, min_tokens=10, logit_bias={7: 5.0}),
] * 3


@pytest.fixture(scope="module")
def alone(llama: Path) -> list[list[int]]:
    """What a dozen prompts are continued with, one after the other, without a prefix cache."""
    engine = build_engine(llama, disable_radix_cache=True)
    prompts = random_prompts(len(MIXED), VOCAB_SIZE)
    return [run(engine, [p], s)[0] for p, s in zip(prompts, MIXED, strict=True)]


@pytest.mark.parametrize(
    ("policy", "overlap", "page_size"),
    [
        *(("fcfs", False, 1), ("fcfs", True, 16), ("lpm", False, 16), ("lpm", True, 1)),  # each two together
        *also_each(("fcfs", False, 16), ("fcfs", True, 1), ("lpm", False, 1), ("lpm", True, 16)),
    ],
)
def test_tokens_do_not_depend_on_scheduling(
    llama: Path, alone: list[list[int]], policy: str, overlap: bool, page_size: int
) -> None:
    engine = build_engine(
        llama,
        policy=policy,
        overlap=overlap,
        page_size=page_size,
        max_total_tokens=400,
        chunked_prefill_size=16,
        schedule_conservativeness=0.05,
    )
    assert run(engine, random_prompts(len(MIXED), VOCAB_SIZE), MIXED) == alone
    assert engine.stats().num_retractions > 0


@pytest.mark.long
@pytest.mark.slow
def test_demo_outputs_equal_transformers() -> None:
    prompts = demo_prompts(of_length(20, 60))
    expected = generate_alone(str(DEMO), prompts, 40, eos=demo_token("<|im_end|>"))
    sampling = SamplingParams(temperature=0, max_tokens=40)
    for chunk in (16, 64, 512):
        engine = build_engine(
            str(DEMO),
            chunked_prefill_size=chunk,
            context_length=128,
            max_total_tokens=130,
            schedule_conservativeness=0.05,
        )
        assert run(engine, prompts, sampling, eos=[demo_token("<|im_end|>")], seed=chunk) == expected
        assert engine.stats().num_retractions > 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_seeded_text_does_not_depend_on_batching(dtype: str) -> None:
    """Alone, among others and after a retraction."""
    if dtype == "bfloat16" and not has_fast_bfloat16():
        pytest.skip("without instructions for bfloat16 its products are added up otherwise")
    num = of_length(12, 20)
    prompts = demo_prompts(num)
    sampling = [SamplingParams(max_tokens=40, seed=i, temperature=0.9, top_p=0.95) for i in range(num)]
    engine = build_engine(str(DEMO), dtype=dtype)
    alone = [run(engine, [p], s)[0] for p, s in zip(prompts, sampling, strict=True)]
    assert run(engine, prompts, sampling) == alone
    crowded = build_engine(str(DEMO), dtype=dtype, max_total_tokens=300, schedule_conservativeness=0.05)
    assert run(crowded, prompts, sampling) == alone
    assert crowded.stats().num_retractions > 0


def test_different_seeds_give_different_outputs(llama: Path) -> None:
    engine = build_engine(llama)
    prompts = [[5, 6, 7]] * 8
    outputs = run(engine, prompts, [SamplingParams(max_tokens=20, seed=i) for i in range(8)])
    assert len({tuple(output) for output in outputs}) == 8


def test_the_server_seed_makes_unseeded_requests_repeatable(llama: Path) -> None:
    prompts = [[5, 6, 7]] * 4
    sampling = SamplingParams(max_tokens=20)
    first = run(build_engine(llama, random_seed=1), prompts, sampling)
    assert len({tuple(output) for output in first}) == 4
    assert run(build_engine(llama, random_seed=1), prompts, sampling) == first
    assert run(build_engine(llama, random_seed=2), prompts, sampling) != first


def test_a_stop_token_is_the_last_token(llama: Path) -> None:
    engine = build_engine(llama)
    [free] = run(engine, [[5, 6, 7]], eos=())
    stop = free[5]
    sampling = SamplingParams(temperature=0, max_tokens=24, stop_token_ids=(stop,))
    assert run(engine, [[5, 6, 7]], sampling, eos=()) == [free[: free.index(stop) + 1]]


def test_min_tokens_delays_the_end(llama: Path) -> None:
    engine = build_engine(llama)
    [free] = run(engine, [[5, 6, 7]], eos=())
    sampling = SamplingParams(temperature=0, max_tokens=24, min_tokens=10)
    [held] = run(engine, [[5, 6, 7]], sampling, eos=[free[0]])
    assert free[0] not in held[:10]
    assert held.index(free[0]) == len(held) - 1 if free[0] in held else len(held) == 24


def test_the_first_event_reports_cached_tokens(llama: Path) -> None:
    engine = build_engine(llama)
    prompt = list(range(2, 50))
    cached = []
    for i in range(2):
        engine.add(Request(id=str(i), prompt=prompt, sampling=GREEDY))
        events = [event for _ in range(30) if engine.has_work for event in engine.step()]
        cached.append([event.cached_tokens for event in events if event.cached_tokens])
        assert events[-1].finish_reason is FinishReason.LENGTH
    assert cached == [[], [47]]


def test_an_aborted_request_frees_its_pages(llama: Path) -> None:
    engine = build_engine(llama, overlap=True)
    engine.add(Request(id="a", prompt=[5, 6, 7], sampling=GREEDY))
    engine.step()
    engine.abort("a")
    while engine.has_work:
        assert engine.step() == []
    assert engine.stats().num_used_tokens == 0


def test_outputs_end_at_the_context_length(llama: Path) -> None:
    engine = build_engine(llama, context_length=32)
    [output] = run(engine, [[5] * 20], SamplingParams(temperature=0), eos=())
    assert len(output) == 12
    with pytest.raises(ContextLengthError, match=r"20 tokens and max_tokens 13 make 33; .* 32") as caught:
        run(engine, [[5] * 20], SamplingParams(max_tokens=13))
    assert caught.value.param == "max_tokens"
    with pytest.raises(ContextLengthError, match="32 tokens; the longest sequence is 32"):
        run(engine, [[5] * 32])


@pytest.mark.parametrize(
    ("prompt", "sampling", "param"),
    [
        ([], SamplingParams(), "prompt"),
        ([5, VOCAB_SIZE], SamplingParams(), "prompt"),
        ([-1], SamplingParams(), "prompt"),
        ([5], SamplingParams(logit_bias={VOCAB_SIZE: 1}), "logit_bias"),
        ([5], SamplingParams(stop_token_ids=(VOCAB_SIZE,)), "stop_token_ids"),
    ],
)
def test_a_wrong_request_names_the_field(
    llama: Path, prompt: list[int], sampling: SamplingParams, param: str
) -> None:
    with pytest.raises(RequestError) as caught:
        run(build_engine(llama), [prompt], sampling)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "settings",
    [
        {"context_length": 100_000},
        {"dtype": "float12"},
        {"device": "abacus"},
        {"page_size": 0},
        {"max_total_tokens": 1},
        {"attention": "flashinfr"},
        {"policy": "lmp"},
        {"options": {"attention.bogus": "1"}},
        {"mem_fraction_static": 1.5},
    ],
)
def test_a_wrong_setting_quotes_its_value(llama: Path, settings: dict[str, object]) -> None:
    value = next(iter(settings.values()))
    named = str(value) if not isinstance(value, dict) else "bogus"
    with pytest.raises(ConfigError, match=named):
        build_engine(llama, **settings)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="config"):
        build_engine(tmp_path)


def test_random_weights_need_only_a_config(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((llama / "config.json").read_text())
    engine = build_engine(tmp_path, load_format="dummy")
    assert [len(output) for output in run(engine, [[5, 6]], eos=())] == [24]


def demo_token(text: str) -> int:
    return int(Tokenizer.from_file(str(DEMO / "tokenizer.json")).token_to_id(text))


def demo_prompts(count: int) -> list[list[int]]:
    """Return chat prompts on what the demo model was trained on, many of which begin alike."""
    rng = random.Random(0)
    countries = ["France", "Italy", "Japan", "Peru", "Kenya", "Norway"]
    questions = [
        *(f"What is the capital of {country}?" for country in countries),
        "Write a short story about a space explorer.",
        "Tell me a joke about programming",
        "List 3 countries and their capitals.",
    ]
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    prompts = []
    for i in range(count):
        question = rng.choice(questions) if rng.random() < 0.7 else f"What is {i} plus {rng.randrange(50)}?"
        system = (
            "<|im_start|>system\nYou are a helpful AI assistant<|im_end|>\n" if rng.random() < 0.5 else ""
        )
        text = f"{system}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        prompts.append(tokenizer.encode(text).ids)
    return prompts
