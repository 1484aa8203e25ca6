"""What an engine process imports, and that nothing is missing for who needs the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..engine.generation.tiny_models import SERVABLE, save_random_model

HEAVY = (
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.tensor",
    "torch.distributed.checkpoint",
    "torch.onnx",
    "scipy",
    "sklearn",
    "transformers",
    "transformers.models",
)
"""Not run by an engine that serves the demo model on a CPU: each takes a tenth of a second or more."""

BUILT = """
from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.process.process import _build
from llmfw.core.imports.postponed import has_run
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins
engine = _build(EngineConfig(model=resolve_model("demo", load_plugins().registry).path, device="cpu"))
"""


def test_an_engine_process_runs_nothing_heavy_that_it_does_not_use(fresh_python: Callable[..., str]) -> None:
    assert fresh_python(BUILT + f"print([name for name in {HEAVY} if has_run(name)])").endswith("[]\n")


@pytest.mark.slow
def test_what_was_postponed_is_there_for_a_plugin_that_uses_it(fresh_python: Callable[..., str]) -> None:
    code = """
import torch, transformers
@torch.compiler.disable
def outside(x):
    return x + 1
seen = []
def backend(graph, inputs):
    seen.append(graph)
    return graph.forward
result = torch.compile(lambda x: outside(x * 2) * 3, backend=backend)(torch.ones(2))
print(result.tolist(), len(seen), torch._dynamo.__name__)
print(transformers.LlamaConfig().model_type, transformers.models.__name__)
from transformers.masking_utils import TransformGetItemToIndex
with TransformGetItemToIndex():
    print(torch.arange(3)[torch.tensor(2)].item())
"""
    lines = fresh_python(BUILT + code).splitlines()
    assert lines[-3:] == ["[9.0, 9.0] 2 torch._dynamo", "llama transformers.models", "2"]


@pytest.mark.slow
def test_every_architecture_loads_without_what_is_left_out(
    fresh_python: Callable[..., str], tmp_path: Path
) -> None:
    for i, (config, settings) in enumerate(SERVABLE.values()):
        save_random_model(tmp_path / str(i), config, settings)
    code = f"""
from llmfw.core.imports.hf import import_modeling
import_modeling()
import torch
from llmfw.core.base.config import EngineConfig
from llmfw.core.model.models import load_model
from llmfw.core.imports.postponed import has_run
from llmfw.core.plugin.registry import Registry
for i in range({len(SERVABLE)}):
    load_model(EngineConfig(model=f"{tmp_path}/{{i}}", dtype="float32"), torch.device("cpu"), Registry())
print(has_run("torch._dynamo"), has_run("transformers"))
"""
    assert fresh_python(code) == "False False\n"
