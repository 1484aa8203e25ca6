"""Whether tokens are the greedy ones of a model, as transformers computes it in float32; near ties may go either way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

NEAR = 0.25
"""By how much a chosen token's logit may be below the highest. Those of the tests' models go from about -8 to 8."""


def assert_greedy(
    folder: Path, prompts: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], device: str
) -> None:
    """Check each token of each output, given what stands before it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output, "nothing was generated"
        ids = torch.tensor([[*prompt, *output]], device=device)
        with torch.inference_mode():
            logits = model(ids).logits[0, len(prompt) - 1 : -1].cpu()
        chosen = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        below = logits.max(dim=1).values - chosen
        assert float(below.max()) <= NEAR, f"token {int(below.argmax())} of {output} after {prompt}"
