"""The engine on a GPU generates what transformers does, with graphs and fused modules as without them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.plugin.plugins import load_plugins

from ..core.engine.generation.running import build_engine, generate, random_prompts, run
from ..core.engine.generation.tiny_models import VOCAB_SIZE, save_random_model
from .greedy import assert_greedy

pytestmark = pytest.mark.gpu

SETTINGS: dict[str, dict[str, Any]] = {
    "as served": {},
    "plain loop": {"overlap": False},
    "pages of 16": {"page_size": 16},
    "no prefix cache": {"disable_radix_cache": True},
    "short chunks": {"chunked_prefill_size": 16},
    "no graphs": {"cuda_graph": "off"},
    "graphs when first met": {"cuda_graph": "lazy"},
    "no module passes": {"module_passes": "none"},
}
ENTRIES = [entry for entry in load_plugins().registry.entries("attention") if entry.is_for("cuda")]
TOKENS = SamplingParams(temperature=0, max_tokens=40)


@pytest.fixture(scope="module", params=["LlamaConfig", "Qwen3Config"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers with heads of 128: the size whose kernels are compiled ahead."""
    changes = {"num_hidden_layers": 2, "hidden_size": 256, "head_dim": 128, "intermediate_size": 512}
    return save_random_model(tmp_path_factory.mktemp("model"), request.param, changes)


def engine_on_gpu(folder: Path, **settings: Any) -> Any:
    """Build an engine in bfloat16."""
    common = {"device": "cuda", "dtype": "bfloat16", "grammar": "none", "max_total_tokens": 4096}
    return build_engine(folder, **(common | settings))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_tokens_equal_transformers(folder: Path, settings: dict[str, Any]) -> None:
    prompts = random_prompts(12, VOCAB_SIZE)
    outputs = run(engine_on_gpu(folder, **settings), prompts, TOKENS, eos=(), seed=1)
    assert [len(output) for output in outputs] == [40] * 12
    assert_greedy(folder, prompts, outputs, "cuda", torch.bfloat16)


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_tokens_equal_transformers_with_every_backend(folder: Path, entry: Any) -> None:
    if missing := entry.missing():
        pytest.skip(f"{entry.name} needs {', '.join(missing)}")
    prompts = random_prompts(12, VOCAB_SIZE)
    outputs = run(engine_on_gpu(folder, attention=entry.name), prompts, TOKENS, eos=(), seed=1)
    assert_greedy(folder, prompts, outputs, "cuda", torch.bfloat16)


def logprobs_of_output(folder: Path, **settings: Any) -> list[float]:
    """Return those of eight requests' tokens, which are the same whatever the settings, as each is the only allowed."""
    engine = engine_on_gpu(folder, **settings)
    prompts = random_prompts(8, VOCAB_SIZE)
    requests = [
        Request(
            id=str(i),
            prompt=prompt,
            sampling=SamplingParams(temperature=0, max_tokens=16, logit_bias={7 + i: 100.0}),
            logprobs=0,
        )
        for i, prompt in enumerate(prompts)
    ]
    outcomes = generate(engine, requests)
    assert [set(outcome.token_ids) for outcome in outcomes] == [{7 + i} for i in range(8)]
    return [record.logprob for outcome in outcomes for record in outcome.logprobs]


@pytest.mark.parametrize(
    ("settings", "mean", "most"),
    [({"cuda_graph": "off"}, 0.02, 0.1), ({"module_passes": "none"}, 0.05, 0.5)],
    ids=str,
)
def test_logprobs_do_not_depend_on_graphs_and_passes(
    folder: Path, settings: dict[str, Any], mean: float, most: float
) -> None:
    """Passes round to bfloat16 at fewer places than the model's own modules."""
    both = torch.tensor([logprobs_of_output(folder), logprobs_of_output(folder, **settings)])
    differences = both.diff(dim=0).abs()
    assert float(differences.mean()) <= mean
    assert float(differences.max()) <= most
