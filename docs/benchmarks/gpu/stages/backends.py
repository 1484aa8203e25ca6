"""The whole decode with each attention backend, as `decode` measures it, in fewer steps."""

from __future__ import annotations

from collections.abc import Iterator

from lines import Line, line_of_error
from offline import Offline, free_memory
from stages.attention import chosen_backends, layer_specs, reason_against
from stages.decode import decode_lines
from task import Task


def measure(task: Task) -> Iterator[Line]:
    """Measure every backend that is installed and can serve the model."""
    sizes = task.sizes
    for entry in chosen_backends(task):
        if reason := reason_against(entry, layer_specs(task, sizes.model["num_hidden_layers"]), task):
            yield Line(f"{entry.name}: decode", note=reason)
            continue
        try:
            offline = Offline(task, entry.name)
            for batch in sizes.backend_batches:
                offline.run(offline.prompts(batch, sizes.prompt), 6)
                yield from decode_lines(offline, task, batch, sizes.window + 10, f"{entry.name}: ")
        except Exception as error:  # noqa: BLE001 - one backend's line; the others are measured
            yield line_of_error(f"{entry.name}: decode", error)
        offline = None  # its memory is the next one's
        free_memory()
