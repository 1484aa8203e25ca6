"""Whether tokens are the greedy ones of a model, as transformers computes it in the same dtype; near ties may go either
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

NEAR = 0.25
"""By how much a chosen token's logit may be below the highest. Those of the tests' models go from about -10 to 10, and
bfloat16 rounds such numbers to multiples of 1/16."""


def assert_greedy(
    folder: Path,
    prompts: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
    device: str,
    dtype: torch.dtype,
) -> None:
    """Check each token of each output, given what stands before it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(device).eval()
    for prompt, output in zip(prompts, outputs, strict=True):
        assert output, "nothing was generated"
        ids = torch.tensor([[*prompt, *output]], device=device)
        with torch.inference_mode():
            logits = model(ids).logits[0, len(prompt) - 1 : -1].float().cpu()
        chosen = logits.gather(1, torch.tensor(output)[:, None])[:, 0]
        below = logits.max(dim=1).values - chosen
        assert float(below.max()) <= NEAR, f"token {int(below.argmax())} of {output} after {prompt}"
