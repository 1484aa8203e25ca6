"""Which kernels are launched before those ahead of them have ended."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from llmfw.core.kernels.dependent_launch import VARIABLE, launches_early


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels be compiled, not interpreted, whatever the environment says."""
    monkeypatch.setattr("llmfw.core.kernels.dependent_launch.is_compiled", lambda: True)


@pytest.mark.parametrize(
    ("capability", "expected"), [((8, 0), False), ((8, 9), False), ((9, 0), True), ((12, 0), True)]
)
def test_devices_from_hopper_on_launch_early(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: bool
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert launches_early.__wrapped__(torch.device("cuda")) is expected
    monkeypatch.setenv(VARIABLE, "0")
    assert launches_early.__wrapped__(torch.device("cuda")) is False


def test_a_cpu_launches_nothing_early() -> None:
    assert launches_early(torch.device("cpu")) is False
