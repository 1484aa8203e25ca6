"""Serves a tiny checkpoint by llmfw's engine, and compares what it says with transformers' own forward pass."""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import LLMFWError
from llmfw.core.base.request import Request, SamplingParams, TokenLogprob
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.plugin.plugins import load_plugins

from .checkpoint import class_of, save_checkpoint
from .tiny_config import VOCAB_SIZE

PROMPT_LENGTHS = (1, 7, 33, 70)
SHARED_LENGTHS = (41, 58)
NUM_SHARED = 30
TOLERANCE = 1e-4
LOOSE_TOLERANCES = dict.fromkeys(
    (
        *("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"),
        *("minicpmv4_6", "minicpmv4_7"),
    ),
    2e-4,
)
"""transformers' own float32 is as far from float64 for these."""
TOP = 5
NOT_OURS = (" failed: ", " cannot be loaded: ", " cannot be built: ")
"""In a refusal: transformers raised, as it did without llmfw."""


@dataclass(frozen=True)
class Verdict:
    """What became of a model type.

    Attributes:
        outcome: "equal", "refused", "different", "traceback" or "not built".
        reason: why, on one line; for "equal" the largest difference of log probabilities.
        architecture: the model class.
        module_passes: that changed the served model.
    """

    outcome: str
    reason: str = ""
    architecture: str = ""
    module_passes: tuple[str, ...] = ()


def try_config(
    config: PreTrainedConfig, folder: Path, tolerance: float = TOLERANCE, max_tokens: int = 24
) -> Verdict:
    """Write a random checkpoint of a config into a folder, serve it, and compare.

    Returns:
        The verdict; nothing is raised but what ends the process.
    """
    try:
        save_checkpoint(config, folder)
        reference = load_reference(folder)
        reference_logprobs(reference, [3, 5, 7])
    except Exception as error:  # noqa: BLE001 - whatever transformers raises is the reason to report
        return try_without_weights(config, folder, where_raised(error).replace(str(folder), "…"))
    architecture = type(reference).__name__
    try:
        engine = build_engine(folder)
    except LLMFWError as error:
        outcome = "refused" if "\n" not in str(error) else "traceback"
        return Verdict(outcome, str(error).replace(str(folder), "…"), architecture)
    except Exception as error:  # noqa: BLE001 - the finding
        return Verdict("traceback", where_raised(error), architecture)
    passes = engine.info.module_passes
    try:
        difference = largest_difference(engine, reference, max_tokens)
    except Exception as error:  # noqa: BLE001 - the finding
        return Verdict("traceback", where_raised(error), architecture, passes)
    outcome = "equal" if difference <= tolerance else "different"
    return Verdict(outcome, f"log probabilities within {difference:.1e}", architecture, passes)


def try_without_weights(config: PreTrainedConfig, folder: Path, reason: str) -> Verdict:
    """Return what llmfw says of a config alone, where transformers cannot run a model of it.

    Args:
        reason: why it cannot.
    """
    config.save_pretrained(folder)
    try:
        build_engine(folder, load_format="dummy")
    except LLMFWError as error:
        if not any(words in str(error) for words in NOT_OURS):
            outcome = "refused" if "\n" not in str(error) else "traceback"
            return Verdict(outcome, str(error).replace(str(folder), "…"))
    except Exception as error:  # noqa: BLE001 - the finding
        return Verdict("traceback", where_raised(error))
    return Verdict("not built", reason)


def build_engine(folder: Path, **settings: Any) -> Engine:
    """Build an engine as `llmfw serve` does, in float32 on the CPU, that cuts prompts into pieces of 32 tokens."""
    config = EngineConfig(
        **({"context_length": 128} | settings),
        model=str(folder),
        device="cpu",
        dtype="float32",
        max_total_tokens=1024,
        chunked_prefill_size=32,
        prefill_stretch=0,
        grammar="none",
    )
    return build_generation_engine(config, load_plugins().registry)


def load_reference(folder: Path) -> nn.Module:
    """Load a checkpoint with the attention that transformers takes by default.

    Attention with a soft cap is eager: the default of transformers 5.17, SDPA, leaves the cap out.
    """
    config = AutoConfig.from_pretrained(folder)
    is_capped = getattr(config.get_text_config(decoder=True), "attn_logit_softcapping", None) is not None
    model: nn.Module = class_of(config).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager" if is_capped else None
    )
    return model.eval()


def reference_logprobs(model: nn.Module, tokens: Sequence[int]) -> torch.Tensor:
    """Return the log probabilities [T, vocab] after each of these tokens, by one forward pass without a cache."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits
    return torch.log_softmax(logits[0].float(), dim=-1)


def prompts() -> list[list[int]]:
    """Return prompts of 1 to 70 tokens, some of which begin alike."""
    rng = random.Random(5)
    drawn = [[rng.randrange(2, VOCAB_SIZE) for _ in range(n)] for n in (*PROMPT_LENGTHS, *SHARED_LENGTHS)]
    shared = drawn[-1][:NUM_SHARED]
    return [
        *drawn[: len(PROMPT_LENGTHS)],
        *(shared + each[NUM_SHARED:] for each in drawn[len(PROMPT_LENGTHS) :]),
    ]


def largest_difference(engine: Engine, reference: nn.Module, max_tokens: int) -> float:
    """Return by how much log probabilities differ at most; the second set of prompts finds the first in the cache.

    What a token's own log probability lacks to the largest one at its place counts, too: the choice is greedy.
    """
    worst = 0.0
    for _ in range(2):
        for prompt, (tokens, records) in zip(prompts(), continue_all(engine, max_tokens), strict=True):
            expected = reference_logprobs(reference, prompt + tokens)[len(prompt) - 1 : -1]
            first = reference_logprobs(reference, prompt)[-1]
            worst = max(worst, _difference(records[:1], tokens[:1], first[None]))
            worst = max(worst, _difference(records, tokens, expected))
    return worst


def _difference(records: Sequence[TokenLogprob], tokens: Sequence[int], expected: torch.Tensor) -> float:
    tops = torch.tensor([record.top_logprobs for record in records])
    at_tops = expected.gather(1, torch.tensor([record.top_ids for record in records]))
    chosen = expected.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    own = torch.tensor([record.logprob for record in records])
    differences = [
        tops - at_tops,
        tops - expected.topk(TOP, dim=1).values,
        own - chosen,
        expected.max(dim=1).values - chosen,
    ]
    worst = max(float(each.abs().max()) for each in differences)
    return float("inf") if math.isnan(worst) else worst


def continue_all(engine: Engine, max_tokens: int) -> list[tuple[list[int], list[TokenLogprob]]]:
    """Submit all prompts at once; return the tokens of each and what is known of them."""
    sampling = SamplingParams(temperature=0, max_tokens=max_tokens)
    results: dict[str, tuple[list[int], list[TokenLogprob]]] = {}
    for i, prompt in enumerate(prompts()):
        results[str(i)] = ([], [])
        engine.add(Request(id=str(i), prompt=prompt, sampling=sampling, logprobs=TOP))
    while engine.has_work:
        for event in engine.step():
            tokens, records = results[event.id]
            tokens += event.token_ids
            records += event.logprobs or ()
            assert event.error is None, event.error
    return list(results.values())


def where_raised(error: BaseException) -> str:
    """Return an exception on one line, with the place that raised it."""
    frames: list[Any] = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in frames)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]}{place}"
