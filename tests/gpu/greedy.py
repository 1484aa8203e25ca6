"""Whether tokens are the greedy ones of a model, as transformers computes it in the same dtype; near ties may go either
way.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

NEAR = 0.5
"""By how much a chosen token's logit may be below the highest. Those of the tests' models go from about -10 to 10, and
transformers in bfloat16 chooses tokens that are 0.38 below the highest in float32; here both sides round."""


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
        worst = float(below.max())
        assert worst <= NEAR, (
            f"token {int(below.argmax())} of {output} after {prompt} is {worst} below the highest"
        )
