"""`generate` of transformers with the same model and lengths: a floor, not a rival; it has no paging and no scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from lines import Line
from task import Task
from transformers import AutoConfig, AutoModelForCausalLM


def measure(task: Task) -> Iterator[Line]:
    """Measure each batch size, after a shorter run that does not count."""
    sizes = task.sizes
    device = torch.device(sizes.device)
    with device:
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(task.model),
            dtype=getattr(torch, sizes.dtype),
            attn_implementation="sdpa",
        )
    model.eval()
    generator = torch.Generator(device).manual_seed(0)
    for batch in sizes.peer_batches:
        ids = torch.randint(
            2, sizes.model["vocab_size"], (batch, sizes.prompt), generator=generator, device=device
        )
        generate(model, ids, 4)
        seconds = generate(model, ids, sizes.peer_output)
        yield Line(
            f"transformers generate, {batch}",
            tok_s=batch * sizes.peer_output / seconds,
            ms=1000 * seconds,
            note=f"{sizes.prompt} in, {sizes.peer_output} out, sdpa",
        )


def generate(model: torch.nn.Module, ids: torch.Tensor, output: int) -> float:
    """Return the seconds in which each row gets so many tokens."""
    if ids.is_cuda:
        torch.cuda.synchronize()
    begun = time.perf_counter()
    with torch.inference_mode():
        whole = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=output,
            min_new_tokens=output,
            do_sample=False,
            pad_token_id=0,
        )
    assert whole.shape[1] == ids.shape[1] + output
    if ids.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - begun
