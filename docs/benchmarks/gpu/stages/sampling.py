"""What sampling adds to a step: the same decode, greedy and with the parameters that chats use."""

from __future__ import annotations

from collections.abc import Iterator

from lines import Line
from offline import Offline, Window, full_steps
from task import Task

from llmfw.core.base.request import SamplingParams

WAYS = {
    "temperature 1": SamplingParams(temperature=1.0, seed=1),
    "temperature 0.6, top_p 0.9": SamplingParams(temperature=0.6, top_p=0.9, seed=1),
}
"""How tokens are chosen. The second is what Llama-3.1's generation_config.json asks for."""


def sampling_lines(offline: Offline, task: Task) -> Iterator[Line]:
    """Yield a line for each number of sequences and each way; the ratio is that of greedy steps to these."""
    for batch in task.sizes.sampled_batches:
        greedy = decode(offline, task, batch, SamplingParams(temperature=0))
        for way, sampling in WAYS.items():
            window = decode(offline, task, batch, sampling)
            yield Line(
                f"decode {batch}, {way}",
                tok_s=batch / window.median,
                ms=1000 * window.median,
                limit_ms=1000 * greedy.median,
                goal="sampling",
                note=f"limit: a greedy step; {1000 * (window.median - greedy.median):.3f} ms more",
            )


def decode(offline: Offline, task: Task, batch: int, sampling: SamplingParams) -> Window:
    """Return the figures of steps in which all sequences decode, after a run that does not count."""
    prompt = task.sizes.prompt
    offline.run(offline.prompts(batch, prompt), 6, sampling)
    steps = offline.run(offline.prompts(batch, prompt), task.sizes.window + 10, sampling)
    return Window.of(full_steps(steps, batch), batch, prompt)
