"""Attention over pages that are given as compressed rows, in float64: what stand-ins for kernels compute."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import _disable_current_modes

from llmfw.core.testing.attention_case import attend_in_float64, make_layer


def attend_pages(
    query: torch.Tensor,  # [T, H, D]
    stored: tuple[torch.Tensor, torch.Tensor],  # keys and values, [pages, page_size, Hkv, D]
    out: torch.Tensor,  # [T, H, D]
    query_indptr: torch.Tensor,  # [B + 1]
    pages: tuple[torch.Tensor, torch.Tensor, torch.Tensor],  # indptr [B + 1], indices, last_page_len [B]
    *,
    scale: float,
    window_left: int,
    soft_cap: float,
) -> None:
    """Write the attention of the last tokens of each sequence to `out`."""
    _, page_size, num_kv_heads, head_dim = stored[0].shape
    spec = make_layer(
        num_heads=query.shape[1],
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        scale=scale,
        sliding_window=None if window_left == -1 else window_left + 1,
        softcap=soft_cap or None,
    )
    indptr, indices, last_page_len = pages
    with _disable_current_modes():  # a kernel does no calls of torch that a test could count
        for i in range(len(last_page_len)):
            mine = indices[int(indptr[i]) : int(indptr[i + 1])].long()
            length = (len(mine) - 1) * page_size + int(last_page_len[i])
            rows = slice(int(query_indptr[i]), int(query_indptr[i + 1]))
            keys, values = (cache[mine].double().flatten(0, 1)[:length] for cache in stored)
            out[rows] = attend_in_float64(query[rows], keys, values, spec, None).to(out.dtype)
