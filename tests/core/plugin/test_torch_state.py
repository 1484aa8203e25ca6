"""What a plugin changes in torch for the whole process is set back, and named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from llmfw.core.interfaces.policy import Ordering, SchedulePolicy
from llmfw.core.plugin.registry import Entry
from llmfw.core.plugin.torch_state import keeping_torch_state

CHANGES: dict[str, Callable[[], object]] = {
    "default dtype from torch.float32 to torch.float64": lambda: torch.set_default_dtype(torch.float64),
    "default device from cpu to meta": lambda: torch.set_default_device("meta"),
    "gradients from on to off": lambda: torch.set_grad_enabled(False),
    "deterministic algorithms from off to on": lambda: torch.use_deterministic_algorithms(True),
    "float32 matmul precision from highest to medium": lambda: torch.set_float32_matmul_precision("medium"),
    "flush denormal from off to on": lambda: torch.set_flush_denormal(True),
    f"number of threads from {torch.get_num_threads()} to 7": lambda: torch.set_num_threads(7),
}
ENTRY = Entry("policy", "changing", f"{__name__}:Changing", "ours", "llmfw-ours", "1.0")


class Changing(SchedulePolicy):
    """Changes torch's default dtype when it is built."""

    def __init__(self) -> None:
        torch.set_default_dtype(torch.float64)

    def order(self, waiting, figures):  # type: ignore[no-untyped-def]
        return Ordering.by(waiting.arrival)


@pytest.fixture(autouse=True)
def torch_as_before() -> Iterator[None]:
    with keeping_torch_state(lambda: "a failing test"):
        yield


@pytest.mark.parametrize("said", CHANGES)
def test_a_changed_setting_is_restored_and_named(said: str, caplog: pytest.LogCaptureFixture) -> None:
    with keeping_torch_state(lambda: "importing policy 'mine' of plugin 'ours'"):
        CHANGES[said]()
    [record] = caplog.records
    start = (
        f"importing policy 'mine' of plugin 'ours' changed settings of torch for the whole process: {said}. "
    )
    assert record.getMessage().startswith(start)
    with keeping_torch_state(lambda: "nothing"):
        pass
    assert caplog.records == [record]


def test_building_a_component_keeps_torch_settings(caplog: pytest.LogCaptureFixture) -> None:
    ENTRY.build(Changing)
    assert torch.get_default_dtype() == torch.float32
    assert f"building {ENTRY} changed settings" in caplog.text


@pytest.fixture
def changing(tmp_path: Path) -> Path:
    """Write a module that changes torch's default dtype, and return its folder."""
    (tmp_path / "changing.py").write_text(
        "import torch\nfrom llmfw.core import SchedulePolicy\n"
        "torch.set_default_dtype(torch.float64)\n"
        "class Mine(SchedulePolicy):\n    def order(self, waiting, figures): ...\n"
    )
    return tmp_path


def test_importing_a_component_keeps_torch_settings(
    changing: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.syspath_prepend(changing)
    Entry("policy", "mine", "changing:Mine", "ours", "llmfw-ours", "1.0").load()
    monkeypatch.delitem(sys.modules, "changing")
    assert torch.get_default_dtype() == torch.float32
    assert "importing policy 'mine' of plugin 'ours'" in caplog.text


@pytest.mark.long  # a new interpreter imports torch
def test_the_component_may_be_what_imports_torch(changing: Path) -> None:
    code = (
        "import sys; from llmfw.core.plugin.registry import Entry\n"
        "assert 'torch' not in sys.modules\n"
        "Entry('policy', 'mine', 'changing:Mine', 'ours', 'llmfw-ours', '1.0').load()\n"
        "import torch; assert torch.get_default_dtype() == torch.float32"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=changing, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "importing policy 'mine' of plugin 'ours'" in done.stderr
    assert "default dtype from torch.float32 to torch.float64" in done.stderr
