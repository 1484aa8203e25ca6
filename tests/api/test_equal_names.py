"""A plugin whose components are named like llmfw's own changes nothing for those who do not choose them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmfw.api.services.option_checks import default_template
from llmfw.api.services.stores import open_stores
from llmfw.core.base.config import ServerConfig
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

CLASHES = {
    "schedule_policies": ("lpm", "fcfs"),
    "attention_backends": ("cpu", "torch"),
    "chat_templates": ("jinja",),
    "file_stores": ("memory", "sqlite"),
    "batch_stores": ("memory", "sqlite"),
    "response_stores": ("memory", "sqlite"),
    "tool_parsers": ("hermes", "json_calls"),
    "reasoning_parsers": ("qwen3",),
    "models": ("demo",),
}
SOURCE = "\n".join(
    f"@hookimpl\ndef register_{hook}(register):\n    for name in {names}: register(name, 'no_such:C', rank=-9)"
    for hook, names in CLASHES.items()
)


@pytest.fixture
def clash(install_plugin) -> Path:
    return install_plugin("clash", SOURCE)


def command(clash: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llmfw.api", *args],
        env=os.environ | {"PYTHONPATH": str(clash)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.long
@pytest.mark.torch
def test_a_batch_runs_with_bundled_components(clash: Path, tmp_path: Path) -> None:
    """Model, policy, template, stores, parsers and the parser of enforced calls have defaults."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9, "model": "demo"}
    enforced = body | {"tools": [tool], "tool_choice": "required", "max_tokens": 90}
    requests = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": each}
        for number, each in enumerate((body, enforced))
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, requests)))
    out = tmp_path / "out.jsonl"
    done = command(clash, "batch", "run", str(tmp_path / "in.jsonl"), "--output", str(out))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["response"]["status_code"] for line in out.read_text().splitlines()] == [200] * 2


@pytest.mark.parametrize("args", ["--policy lpm", "--file-store sqlite", "--tool-parser hermes", "demo"])
def test_a_chosen_ambiguous_name_is_refused(clash: Path, args: str) -> None:
    done = command(clash, "serve", *args.split())
    assert done.returncode in (1, 2)
    assert "is brought by 2 plugins; choose one of: " in done.stderr


@pytest.mark.parametrize("has_storage", [False, True])
async def test_auto_stores_are_bundled_ones(clash: Path, tmp_path: Path, has_storage: bool) -> None:
    storage = str(tmp_path / "storage") if has_storage else None
    stores = await open_stores(ServerConfig(served_model_name="m", storage=storage), load_plugins().registry)
    await stores.close()


def test_a_sources_parsers_are_bundled_ones(clash: Path) -> None:
    resolved = resolve_model("model_demo/demo", load_plugins().registry)
    assert (resolved.tool_parser, resolved.reasoning_parser) == (
        "parsers_families/hermes",
        "parsers_families/qwen3",
    )


def test_the_models_own_template_is_rendered_by_jinja(clash: Path) -> None:
    assert default_template(load_plugins().registry) == "chat_jinja/jinja"


@pytest.mark.torch
def test_a_model_in_this_process_has_bundled_defaults(clash: Path) -> None:
    from llmfw.api.llm import LLM

    with LLM(log_level="warning") as llm:
        assert llm.generate("Hello")[0].text


def test_simulations_use_the_bundled_default(clash: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 5, "output_length": 3, "hash_ids": [1]}\n')
    done = command(clash, "simulate", str(trace), "--json")
    assert done.returncode == 0, done.stderr
