"""Models served with the backend `cpu`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.cpu_native.library import why_not

from ...core.engine.generation.running import build_engine, generate_alone, random_prompts, run
from ...core.engine.generation.tiny_models import SERVABLE, VOCAB_SIZE, save_random_model
from ...length import also

pytestmark = pytest.mark.skipif(why_not(torch.bfloat16) is not None, reason=str(why_not(torch.bfloat16)))


@pytest.mark.parametrize("family", ["gpt-oss (sinks)", *also(["llama", "gemma 2 (soft cap)"])])
def test_greedy_tokens_equal_transformers(family: str, tmp_path: Path) -> None:
    """With prefix hits and retractions."""
    folder = save_random_model(tmp_path, *SERVABLE[family])
    prompts = random_prompts(10, VOCAB_SIZE)
    expected = generate_alone(folder, prompts, 24, eos=1)
    engine = build_engine(
        folder,
        attention="cpu",
        chunked_prefill_size=16,
        max_total_tokens=150,
        schedule_conservativeness=0.01,
    )
    assert run(engine, prompts) == expected
    assert engine.stats().num_retractions > 0


def test_on_a_cpu_it_precedes_the_reference() -> None:
    names = [entry.name for entry in load_plugins().registry.entries("attention")]
    assert names.index("cpu") < names.index("torch")


@pytest.mark.long
@pytest.mark.parametrize("attention", ["cpu", "torch"])
def test_torch_uses_one_thread_beside_native_code(
    tmp_path: Path, attention: str, fresh_python: Callable[..., str]
) -> None:
    folder = save_random_model(tmp_path, *SERVABLE["llama"])
    settings = f"model={str(folder)!r}, attention={attention!r}, module_passes='cpu-native', threads=2"
    code = (
        "import torch\nfrom llmfw.core.base.config import EngineConfig\nfrom llmfw.core.engine.process.process import _build\n"
        f"_build(EngineConfig({settings}, grammar='none', log_level='error', device='cpu'))\n"
        "print(torch.get_num_threads())"
    )
    assert fresh_python(code).split()[-1] == ("1" if attention == "cpu" else "2")


def test_a_caller_s_process_keeps_its_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    engine = build_engine(save_random_model(tmp_path, *SERVABLE["llama"]), module_passes="cpu-native")
    assert engine.has_own_threads
    assert torch.get_num_threads() == before
