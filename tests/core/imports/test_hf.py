"""What an engine process imports, and that nothing is missing for who needs the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmfw.core.imports import hf

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


POSTPONED = """
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


TEMPLATES = """
from llmfw.core.imports.hf import import_templates
from llmfw.core.imports.postponed import has_run
import sys
print(import_templates().render_jinja_template([[{"role": "user", "content": "Hi"}]], chat_template="{{ messages[0].content }}")[0])
print(has_run("transformers.utils"), "huggingface_hub.hf_api" in sys.modules, "torch" in sys.modules)
import transformers
print(callable(transformers.utils.auto_docstring), transformers.utils.logging.__name__, has_run("transformers"))
"""


def test_templates_are_rendered_without_the_hub_s_client(fresh_python: Callable[..., str]) -> None:
    """Afterwards the rest of transformers' helpers are there, for a plugin that uses them."""
    lines = fresh_python(TEMPLATES).splitlines()
    assert lines == ["['Hi']", "False False False", "True transformers.utils.logging False"]


@pytest.mark.long
def test_heavy_modules_run_only_when_used(fresh_python: Callable[..., str]) -> None:
    """An engine process runs none of them, and a plugin that uses one finds it whole."""
    lines = fresh_python(
        BUILT + f"print([name for name in {HEAVY} if has_run(name)])" + POSTPONED
    ).splitlines()
    assert lines[-4:] == ["[]", "[9.0, 9.0] 2 torch._dynamo", "llama transformers.models", "2"]


PROCESSORS = """
from llmfw.core.imports import hf
from llmfw.core.imports.postponed import has_run
hf.claim_process()
import llmfw.plugins.media_transformers.processor
print([name for name in ("torch._dynamo", "scipy", "transformers") if has_run(name)])
"""


def test_only_a_claimed_process_leaves_modules_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own process, which may serve a model, too, has all of transformers."""
    called: list[int] = []
    monkeypatch.setattr(hf, "_is_claimed", False)
    monkeypatch.setattr(hf, "import_modeling", lambda: called.append(1))
    hf.import_processors()
    assert called == []
    hf.claim_process()
    hf.import_processors()
    assert called == [1]


@pytest.mark.long
def test_image_processors_run_no_heavy_modules(fresh_python: Callable[..., str]) -> None:
    assert fresh_python(PROCESSORS) == "[]\n"


@pytest.mark.long
@pytest.mark.slow
def test_all_architectures_load_without_the_omitted_modules(
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
