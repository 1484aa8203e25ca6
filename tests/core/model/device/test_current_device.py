"""A GPU gets an index when it is chosen, and is the current one of a thread while it is held."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from llmfw.core.base.errors import ConfigError
from llmfw.core.model.device.devices import choose_device, on_device, use_device


class FakeDriver(threading.local):
    """Two GPUs, of which each thread has its own current one: the first until it chooses another."""

    current = 0

    def exchange(self, index: int) -> int:
        before, self.current = self.current, index
        return before


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver()
    fakes: dict[str, Callable[..., object]] = {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "current_device": lambda: driver.current,
        "set_device": lambda device: driver.exchange(torch.device(device).index),
        "_exchange_device": driver.exchange,
        "_maybe_exchange_device": driver.exchange,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return driver


@pytest.mark.parametrize("asked", ["auto", "cuda"])
def test_an_unnamed_gpu_is_the_current_one(driver: FakeDriver, asked: str) -> None:
    assert choose_device(asked) == torch.device("cuda", 0)
    driver.current = 1
    assert choose_device(asked) == torch.device("cuda", 1)
    assert choose_device("cuda:0") == torch.device("cuda", 0)


def test_a_missing_gpu_is_refused(driver: FakeDriver) -> None:
    with pytest.raises(ConfigError, match="there are 2 CUDA devices"):
        choose_device("cuda:2")


def test_a_used_gpu_stays_the_current_one(driver: FakeDriver) -> None:
    use_device(torch.device("cuda", 1))
    use_device(torch.device("cpu"))
    assert driver.current == 1


def test_a_gpu_is_held_in_its_thread(driver: FakeDriver) -> None:
    seen = []

    def hold() -> None:
        with on_device(torch.device("cuda", 1)), on_device(torch.device("cpu")):
            seen.append(driver.current)
        seen.append(driver.current)

    hold()
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert seen == [1, 0, 1, 0]
