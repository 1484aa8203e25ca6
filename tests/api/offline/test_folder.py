"""A run goes on only with what it has begun with."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmfw.api.offline.folder import RunFolder, Subject, digests_of
from llmfw.core.base.errors import ConfigError


def subject(**adapters: Path) -> Subject:
    digests = digests_of((name, str(folder)) for name, folder in adapters.items())
    return Subject(num_bytes=1, sha256="0", model="m", served_name="m", adapters=digests)


def adapter(folder: Path, weights: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_model.safetensors").write_text(weights)
    return folder


def test_a_run_goes_on_with_its_adapters_alone(tmp_path: Path) -> None:
    red, run = adapter(tmp_path / "red", "red"), tmp_path / "run"
    assert not RunFolder(run, subject(a=red), "in.jsonl").is_resumed
    assert RunFolder(run, subject(a=red), "in.jsonl").is_resumed
    for other in (subject(), subject(a=adapter(tmp_path / "blue", "blue")), subject(a=red, b=red)):
        with pytest.raises(
            ConfigError, match=r"this run started with other adapters: '[ab]' was added, removed or changed"
        ):
            RunFolder(run, other, "in.jsonl")
    adapter(red, "green")
    with pytest.raises(ConfigError, match="other adapters: 'a'"):
        RunFolder(run, subject(a=red), "in.jsonl")
