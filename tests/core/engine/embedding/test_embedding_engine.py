"""Vectors are those of the model alone, whatever it is computed with; what cannot be embedded right is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import GetPolicy, GetTrace, PinPrefix, PolicyInfo, SetPolicy, ViewCache
from llmfw.core.base.errors import (
    ConfigError,
    LLMFWError,
    ModelError,
    OverloadedError,
    RequestError,
    TenantLimitError,
)
from llmfw.core.base.request import EmbedRequest
from llmfw.core.engine.embedding.embedding_engine import EmbeddingEngine
from llmfw.core.engine.process.build import build_engine

from ..generation.running import registry
from ..generation.tiny_models import CONTEXT, VOCAB_SIZE, save_random_model
from .encoders import build, embed, embed_alone, minilm, save_encoder, write

BAD = 9
CLOSE = {"rtol": 0, "atol": 1e-5}


def prompts_of(count: int, longest: int = 90, vocab_size: int = VOCAB_SIZE) -> list[list[int]]:
    rng = random.Random(count)
    return [[rng.randrange(2, vocab_size) for _ in range(rng.randrange(1, longest))] for _ in range(count)]


@pytest.mark.long
def test_minilm_batches_equal_single_transformers_runs():
    folder = minilm()
    prompts = prompts_of(24, longest=256, vocab_size=30000)
    vectors = embed(build(folder), prompts)
    for vector, prompt in zip(vectors, prompts, strict=True):
        torch.testing.assert_close(vector, embed_alone(folder, prompt, "mean_tokens"), **CLOSE)


@pytest.mark.parametrize(
    ("config_class", "mode"),
    [
        ("BertConfig", "cls_token"),
        ("BertConfig", "max_tokens"),
        ("RobertaConfig", "mean_tokens"),
        ("MPNetConfig", "mean_tokens"),
        ("ModernBertConfig", "mean_tokens"),
        ("Qwen3Config", "lasttoken"),
    ],
)
def test_models_and_poolings_equal_transformers(tmp_path, config_class, mode):
    changes = {"layer_types": None} if config_class == "Qwen3Config" else {}
    folder = save_encoder(tmp_path, config_class, mode, **changes)
    prompts = prompts_of(12)
    for vector, prompt in zip(embed(build(folder), prompts), prompts, strict=True):
        torch.testing.assert_close(vector, embed_alone(folder, prompt, mode), **CLOSE)


def test_soft_caps_of_attention_count(tmp_path):
    """transformers 5.17's default attention leaves them out."""
    folder = save_encoder(tmp_path, "Gemma2Config", attn_logit_softcapping=0.02, layer_types=None)
    for vector, prompt in zip(embed(build(folder), prompts_of(3)), prompts_of(3), strict=True):
        expected = embed_alone(folder, prompt, "mean_tokens", attn_implementation="eager")
        torch.testing.assert_close(vector, expected, **CLOSE)


def test_roberta_s_context_excludes_reserved_positions(tmp_path):
    engine = build(save_encoder(tmp_path, "RobertaConfig", pad_token_id=1))
    assert engine.info.max_model_len == CONTEXT - 2
    embed(engine, [[5] * (CONTEXT - 2)])
    with pytest.raises(RequestError, match=f"{CONTEXT - 1} tokens.*{CONTEXT - 2}"):
        embed(engine, [[5] * (CONTEXT - 1)])


def test_fewer_dimensions_are_the_first_ones_normalized_again(tmp_path):
    engine = build(save_encoder(tmp_path))
    whole, cut = (embed(engine, prompts_of(3), dimensions) for dimensions in (None, 10))
    torch.testing.assert_close(cut, torch.nn.functional.normalize(whole[:, :10]), **CLOSE)


def test_concurrent_requests_are_each_answered_once(tmp_path):
    engine = build(save_encoder(tmp_path), chunked_prefill_size=64)
    rng = random.Random(0)
    requests = [EmbedRequest(id=str(i), prompts=prompts_of(rng.randrange(1, 9))) for i in range(20)]
    answered, coming = [], list(requests)
    while coming or engine.has_work:
        if coming and rng.random() < 0.5:
            engine.add(coming.pop(0))
        answered += [(event.id, len(event.vectors)) for event in engine.step()]
    assert sorted(answered) == sorted((r.id, len(r.prompts) * 64 * 4) for r in requests)


def test_a_text_that_fails_hurts_only_its_request(tmp_path, caplog):
    engine = build(save_encoder(tmp_path))

    def fail(module, given):
        if bool((given[0] == BAD).any()):
            raise SystemExit("a bad token")

    embeddings = next(
        each for each in engine._encoder.module.modules() if isinstance(each, torch.nn.Embedding)
    )
    embeddings.register_forward_pre_hook(fail)
    for id, prompts in {"a": [[2, 3]], "b": [[3], [4, BAD], [5], [BAD]], "c": [[2, 3], [5]]}.items():
        engine.add(EmbedRequest(id=id, prompts=prompts))
    events = {event.id: event for event in engine.step()}
    assert [events[id].error for id in "abc"] == [
        None, "the model failed on this request; the server's log says why", None
    ]  # fmt: skip
    assert len(events["c"].vectors) == 2 * 64 * 4
    assert events["c"].vectors.startswith(events["a"].vectors)
    assert "a batch failed: RuntimeError: SystemExit: a bad token" in caplog.text
    assert not engine.has_work


def test_an_aborted_request_is_dropped_without_answer(tmp_path):
    engine = build(save_encoder(tmp_path), chunked_prefill_size=8)
    engine.add(EmbedRequest(id="a", prompts=prompts_of(20)))
    assert engine.step() == []
    engine.abort("a")
    engine.abort("unknown")
    assert not engine.has_work
    assert engine.stats().num_waiting == 0


@pytest.mark.parametrize(
    ("prompts", "dimensions", "words"),
    [
        ([], None, "empty"),
        ([[1], []], None, "empty"),
        ([[VOCAB_SIZE]], None, f"0 to {VOCAB_SIZE - 1}"),
        ([[-1]], None, "token id -1; they go from 0"),
        ([[1]], 65, "65; this model has 64"),
        ([[1]], 0, "dimensions is 0"),
    ],
)
def test_a_wrong_request_is_refused(tmp_path_factory, prompts, dimensions, words):
    engine = build(save_encoder(tmp_path_factory.mktemp("bert")))
    with pytest.raises(RequestError, match=words):
        engine.add(EmbedRequest(id="a", prompts=prompts, dimensions=dimensions))
    assert not engine.has_work


def build_for(folder: Path | str, task: str, **settings: object) -> str:
    config = {"model": str(folder), "task": task, "device": "cpu", "max_total_tokens": None} | settings
    return build_engine(EngineConfig(**config), registry()).info.task  # type: ignore[arg-type]


def test_auto_task_embeds_if_pooling_files_exist(tmp_path):
    assert build_for(minilm(), "auto") == "embed"
    assert build_for(save_encoder(tmp_path / "bare", mode=None), "auto") == "embed"
    assert build_for(save_random_model(tmp_path / "llama", "LlamaConfig", {}), "auto") == "generate"


def test_a_decoder_with_pooling_files_embeds_by_default(tmp_path):
    """With `--task generate` it generates."""
    save_random_model(tmp_path, "Qwen3Config", {})
    save_encoder(tmp_path / "files", mode="lasttoken")
    (tmp_path / "files" / "modules.json").rename(tmp_path / "modules.json")
    (tmp_path / "files" / "1_Pooling").rename(tmp_path / "1_Pooling")
    assert build_for(tmp_path, "auto") == "embed"
    assert build_for(tmp_path, "generate") == "generate"


@pytest.mark.parametrize("task", ["generate", "auto"])
def test_encoders_refuse_to_generate(tmp_path, task):
    folder = save_encoder(tmp_path, mode=None)
    config = tmp_path / "config.json"
    name = "BertModel" if task == "generate" else "BertForMaskedLM"
    config.write_text(config.read_text().replace("BertModel", name))
    with pytest.raises(ModelError, match=rf"\({name}\) is an encoder.*--task embed"):
        build_for(folder, task)


def test_generating_models_refuse_to_embed(tmp_path):
    with pytest.raises(ModelError, match=r"LlamaForCausalLM.*modules\.json.*--task generate"):
        build_for(save_random_model(tmp_path, "LlamaConfig", {}), "embed")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"page_size": 16}, "--page-size"),
        ({"policy": "fcfs"}, "--policy"),
        ({"options": {"policy.x": "1"}}, "policy.x"),
        ({"options": {"module_pass.x": "1"}}, "module_pass.x"),
        ({"options": {"logits_processor.dry.x": "1"}}, "logits_processor.dry.x"),
        ({"context_length": CONTEXT + 1}, f"1 to {CONTEXT} tokens"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path, setting, words):
    with pytest.raises(ConfigError, match=words):
        build(save_encoder(tmp_path), **setting)


def test_store_options_are_ignored_by_the_engine(tmp_path):
    assert build(save_encoder(tmp_path), options={"file_store.url": "x"}).info.task == "embed"


def dense(folder: Path) -> None:
    write(folder / "modules.json", [{"path": "", "type": "x.Transformer"}, {"path": "", "type": "x.Dense"}])


def outside(folder: Path) -> None:
    kinds = [{"path": "", "type": "x.Transformer"}, {"path": "../a", "type": "x.Pooling"}]
    write(folder / "modules.json", kinds)


def no_list(folder: Path) -> None:
    write(folder / "modules.json", {"path": ""})


def weighted(folder: Path) -> None:
    write(folder / "1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True})


def two(folder: Path) -> None:
    write(folder / "1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]})


def lower_case(folder: Path) -> None:
    write(folder / "sentence_bert_config.json", {"do_lower_case": True})


def decoder(folder: Path) -> None:
    (folder / "modules.json").unlink()
    save_encoder(folder, "Qwen3Config", mode=None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dense, "Transformer, Dense"),
        (outside, "a path inside the model's folder"),
        (no_list, "must be a list of modules"),
        (weighted, "weightedmean"),
        (two, "cls and mean"),
        (lower_case, "do_lower_case"),
        (decoder, "is a decoder"),
    ],
)
def test_unsupported_pooling_files_are_refused(tmp_path, change, words):
    folder = save_encoder(tmp_path)
    change(tmp_path)
    with pytest.raises(ModelError, match=words):
        build(folder)


def test_mean_pooling_is_the_logged_default(tmp_path, caplog):
    engine = build(save_encoder(tmp_path, mode=None))
    assert "mean of its tokens' outputs" in caplog.text
    vector = embed(engine, [[5, 6, 7]])[0]
    torch.testing.assert_close(
        torch.nn.functional.normalize(vector, dim=0),
        embed_alone(str(tmp_path), [5, 6, 7], "mean_tokens"),
        **CLOSE,
    )


def test_random_weights_can_be_used(tmp_path):
    folder = save_encoder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    assert embed(build(folder, load_format="dummy"), [[5]]).shape == (1, 64)
    with pytest.raises(LLMFWError):
        build(folder)


def test_it_has_the_generation_engine_s_interface(tmp_path):
    from llmfw.core.engine.generation.engine import Engine

    wanted = {name for name in vars(Engine) if not name.startswith("_")}
    assert wanted <= {name for name in vars(EmbeddingEngine) if not name.startswith("_")}


def test_live_embeddings_run_before_deferrable_ones(tmp_path):
    """While live requests run, deferrable batches are small."""
    engine = build(save_encoder(tmp_path), chunked_prefill_size=256)
    engine.add(EmbedRequest(id="batch", prompts=[[5] * 8] * 64, deferrable=True))
    assert engine.step() == []
    assert engine.stats().num_deferrable_waiting == 32
    engine.add(EmbedRequest(id="live", prompts=[[5] * 8]))
    assert [event.id for event in engine.step()] == ["live"]
    assert engine._deferrable_budget.limits().tokens_per_place == 1
    events = [event.id for _ in range(64) if engine.has_work for event in engine.step()]
    assert events == ["batch"]


def test_a_full_embedding_queue_refuses_until_some_finish(tmp_path):
    engine = build(
        save_encoder(tmp_path, "BertConfig", "mean_tokens"), max_queued_requests=2, max_queued_tokens=40
    )
    engine.add(EmbedRequest(id="a", prompts=[[5] * 20, [6] * 10]))
    with pytest.raises(
        OverloadedError, match="30 tokens wait, and this one's 11 tokens would exceed the limit of 40 by 1"
    ):
        engine.add(EmbedRequest(id="b", prompts=[[5] * 11]))
    engine.add(EmbedRequest(id="b", prompts=[[5] * 10]))
    with pytest.raises(OverloadedError, match="2 requests wait"):
        engine.add(EmbedRequest(id="c", prompts=[[5]]))
    engine.add(EmbedRequest(id="d", prompts=[[5]], deferrable=True))
    while engine.has_work:
        engine.step()
    engine.add(EmbedRequest(id="c", prompts=[[5] * 41]))


def test_a_late_embedding_ends_and_reports_progress(tmp_path):
    engine = build(
        save_encoder(tmp_path, "BertConfig", "mean_tokens"), max_running_requests=1, max_tenant_requests=1
    )
    now = 0.0
    engine._clock = lambda: now
    engine.add(EmbedRequest(id="a", prompts=[[5], [6], [7]], timeout_s=2.0, tenant="ann"))
    with pytest.raises(TenantLimitError, match="'ann' has 1 requests"):
        engine.add(EmbedRequest(id="b", prompts=[[5]], tenant="ann"))
    assert engine.step() == []
    now = 2.5
    [end] = engine.step()
    assert (end.error_kind, end.error) == (
        "DeadlineError",
        "the request's timeout of 2 s has passed after 1 of 3 prompts",
    )
    assert not engine.has_work
    engine.add(EmbedRequest(id="b", prompts=[[5]], tenant="ann"))


@pytest.mark.parametrize("command", [SetPolicy("lpm"), ViewCache(), PinPrefix([1], 60.0), GetTrace("a")])
def test_an_encoder_refuses_generation_commands(tmp_path, command):
    engine = build(save_encoder(tmp_path, "BertConfig", "cls_token"))
    assert engine.control(GetPolicy()) == PolicyInfo("fcfs")
    with pytest.raises(RequestError, match="this engine embeds") as caught:
        engine.control(command)
    assert caught.value.code == "unsupported_operation"


def test_a_config_that_asks_for_tuples_is_served(tmp_path: Path) -> None:
    folder = save_encoder(tmp_path)
    expected = embed(build(folder), [[5, 3, 4]])
    config = json.loads((tmp_path / "config.json").read_text())
    write(tmp_path / "config.json", config | {"return_dict": False, "use_cache": False})
    assert torch.equal(embed(build(folder), [[5, 3, 4]]), expected)
