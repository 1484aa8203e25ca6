"""Samples one token per row of logits with one random number, from a few candidates or all tokens.

Each row goes through the same operations, regardless of the other rows.
"""

from __future__ import annotations

import torch

from llmfw.core.interfaces.token_sampler import RowNumbers


def sample_all(logits: torch.Tensor, numbers: RowNumbers) -> torch.Tensor:
    """Sample from all tokens; return token ids: [S]."""
    return _invert(torch.softmax(logits / numbers.temperature, dim=-1), numbers.draws.float())


def sample_candidates(
    logits: torch.Tensor, numbers: RowNumbers, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample from the `size` most likely tokens, filtered by top_k, then top_p, then min_p.

    Returns:
        Token ids: [S]; and whether each row needs more candidates, bool: [S]. Rows with a top_k of at most
        `size` never need more candidates.
    """
    scaled = logits / numbers.temperature
    values, ids = scaled.topk(size, dim=-1)  # [S, size], largest first
    top_k = numbers.top_k
    places = torch.arange(size, device=logits.device)
    limited = top_k <= size  # [S, 1]: whether the candidates include the k most likely tokens
    values = values.masked_fill(places >= top_k, float("-inf"))
    whole = torch.where(limited, values.logsumexp(-1, keepdim=True), scaled.logsumexp(-1, keepdim=True))
    probs = (values - whole).exp()
    before = probs.cumsum(dim=-1) - probs
    keep = (before < numbers.top_p) & (probs >= numbers.min_p * probs[:, :1])
    keep[:, :1].fill_(True)
    undecided = keep[:, -1] & ~limited[:, 0]
    places_drawn = _invert(probs * keep, numbers.draws.float())
    return ids.gather(-1, places_drawn[:, None])[:, 0], undecided


def _invert(weights: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the first index at which the cumulative sum exceeds draw × total: [S]."""
    total = weights.cumsum(dim=-1)
    found = torch.searchsorted(total, draws[:, None] * total[:, -1:], right=True)[:, 0]
    # A draw close to 1 may be rounded up to the total; the result is then the last index with any weight.
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(dim=-1)
    return torch.minimum(found, last)
