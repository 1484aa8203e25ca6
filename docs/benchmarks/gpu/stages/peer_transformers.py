"""transformers with the same model and lengths: its `generate`, a floor that has no paging and no scheduler, and its
continuous batching, which has both and is a rival.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from lines import Line
from task import Task
from transformers import AutoConfig, AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

BLOCK = 256
"""Tokens of a block, as transformers has it by itself; how it is asked for differs between 5.17 and 5.23."""

STEP = 8192
"""Most tokens of a step, as transformers has it by itself."""


def measure(task: Task) -> Iterator[Line]:
    """Measure each number of sequences, after a run that does not count."""
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
        yield _line(task, "generate", batch, generate(model, ids, sizes.peer_output))
    try:
        yield from continuous_lines(model, task)
    except MemoryError as error:
        if sizes.device == "cuda":
            raise
        yield Line(
            "transformers continuous batching", note=f"left out: 5.17 sees no memory on a CPU: {error}"
        )


def continuous_lines(model: torch.nn.Module, task: Task) -> Iterator[Line]:
    """Measure continuous batching, with room for as many tokens as llmfw has."""
    sizes = task.sizes
    # 5.17 guesses what is not said, from what memory is free.
    settings = ContinuousBatchingConfig(num_blocks=-(-sizes.kv_tokens // BLOCK), max_batch_tokens=STEP)
    generator = torch.Generator().manual_seed(0)
    for batch in sizes.peer_streams:
        shape = (2, batch, sizes.prompt)
        first, second = torch.randint(2, sizes.model["vocab_size"], shape, generator=generator).tolist()
        generate_batch(model, first, sizes.peer_output, settings)  # graphs are captured, kernels compiled
        seconds = generate_batch(model, second, sizes.peer_output, settings)
        attention = model.config._attn_implementation
        model.destroy_cached_continuous_batching_manager()
        yield _line(task, f"continuous batching, {attention}", batch, seconds)


def _line(task: Task, how: str, batch: int, seconds: float) -> Line:
    output = task.sizes.peer_output
    return Line(
        f"transformers {how}, {batch}",
        tok_s=batch * output / seconds,
        ms=1000 * seconds,
        note=f"{task.sizes.prompt} in, {output} out",
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


def generate_batch(
    model: torch.nn.Module, prompts: list[list[int]], output: int, settings: ContinuousBatchingConfig
) -> float:
    """Return the seconds in which continuous batching gives each prompt so many tokens."""
    greedy = GenerationConfig(max_new_tokens=output, do_sample=False, eos_token_id=-1, pad_token_id=0)
    begun = time.perf_counter()
    done = model.generate_batch(
        prompts,
        generation_config=greedy,
        continuous_batching_config=settings,
        persistent_manager=True,
    )
    seconds = time.perf_counter() - begun
    made = [len(each.generated_tokens) for each in done.values()]
    if made != [output] * len(prompts):
        raise RuntimeError(f"{len(prompts)} prompts were to get {output} tokens each, and got {made[:8]} …")
    return seconds
