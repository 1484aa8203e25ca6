"""What the engine process gets of the server's environment."""

from __future__ import annotations

import pytest

from llmfw.core.ipc.environment import child_environment


def test_a_child_receives_no_api_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LLMFW_API_KEY", "LLMFW_ADMIN_API_KEY", "OPENAI_API_KEY", "LLMFW_PORT", "HF_TOKEN"):
        monkeypatch.setenv(name, "secret")
    kept = child_environment()
    assert {"LLMFW_PORT", "HF_TOKEN", "PATH"} <= kept.keys()
    assert not any(name.endswith("API_KEY") for name in kept)
