"""The modules of docs/benchmarks/gpu, which import each other by their bare names, as scripts do."""

from __future__ import annotations

from functools import partial

from . import benchmark_script as scripts

FOLDER = scripts.FOLDER / "gpu"
gpu_script = partial(scripts.benchmark_script, folder=FOLDER)
