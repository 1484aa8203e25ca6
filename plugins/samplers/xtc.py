"""The logits processor `xtc`: Exclude Top Choices (p-e-w, 2024), as in llama.cpp and text-generation-webui.

At each position, with the probability `xtc_probability`, it leaves out the likely tokens: all tokens with at
least the probability `xtc_threshold`. Only the least likely of these stays (the first, if several are equally
likely). So the text takes a less usual but still likely turn.

Probabilities are computed before temperature, top_k, top_p and min_p, which apply to the remaining tokens.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
import torch

from llmfw.core import LogitsProcessor, ProcessedRequest, ProcessedRows

DEFAULT_THRESHOLD = 0.1


class XTCArguments(NamedTuple):
    """Arguments of a request."""

    probability: float
    threshold: float


class XTC(LogitsProcessor):
    """Leaves out all likely tokens except the least likely of them, at random positions."""

    conformance: ClassVar = {
        "asking": [
            {"xtc_probability": 1.0},
            {"xtc_probability": 0.5, "xtc_threshold": 0.02},
            {"xtc_probability": 1.0, "xtc_threshold": 0.0},
        ],
        "silent": [{}, {"xtc_probability": 0.0}, {"xtc_threshold": 0.2}],
    }

    def begin(self, request: ProcessedRequest) -> XTCArguments | None:
        probability = float(request.fields.get("xtc_probability", 0.0))
        if not probability:
            return None
        return XTCArguments(probability, float(request.fields.get("xtc_threshold", DEFAULT_THRESHOLD)))

    def process(self, logits: torch.Tensor, rows: ProcessedRows) -> torch.Tensor:
        given = np.array(rows.states, dtype=np.float64)
        with np.errstate(divide="ignore"):
            least = np.maximum(
                np.log(given[:, 1:]), np.finfo(np.float32).min
            )  # forbidden tokens are below this bound
        probabilities, least_logprobs = rows.send(given[:, 0], least.astype(np.float32))
        applies = rows.uniform() < probabilities
        is_likely = torch.log_softmax(logits, dim=-1) >= least_logprobs
        kept = torch.where(is_likely, logits, float("inf")).argmin(
            dim=-1, keepdim=True
        )  # of equal logits, the first
        logit = logits.gather(1, kept)
        return logits.masked_fill_(is_likely & applies[:, None], float("-inf")).scatter_(1, kept, logit)
