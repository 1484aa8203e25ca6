"""What a tenant uses of its limits: refusals of live requests, and the order and pace of deferrable ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from llmfw.api.access import tenant_load, tenant_loads
from llmfw.api.access.keyring import Keyring
from llmfw.api.access.principals import Known
from llmfw.api.access.tenant_load import TenantLoad
from llmfw.api.access.tenant_loads import TenantLoads
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import RateLimitError
from llmfw.core.interfaces.tenant_limits import TenantLimits


class Clock:
    """Seconds, as the test says."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_load, "RECHECK_S", 0.001)


def load_of(clock: Clock, **limits: int) -> TenantLoad:
    return TenantLoad("ann", lambda: TenantLimits(**limits), clock)


async def turns() -> None:
    """Let waiting tasks look again."""
    await asyncio.sleep(0.01)


def test_recalled_limits_hold_until_the_next_principal(clock: Clock) -> None:
    loads = TenantLoads(Keyring(ServerConfig(served_model_name="m")), clock)
    loads.recall("odd/eve", TenantLimits(requests_per_minute=2))
    loads.recall("odd/bob", None)
    assert loads.noted("odd/eve") == TenantLimits(requests_per_minute=2)
    assert loads.of("odd/eve") is not None
    assert loads.of("odd/bob") is None
    for limits in (TenantLimits(requests_per_minute=5), None):
        loads.note(Known("odd/eve", limits=limits))
        loads.recall("odd/eve", TenantLimits(requests_per_minute=2))
        assert loads.noted("odd/eve") == limits
    assert loads.of("odd/eve") is None


def test_requests_beyond_the_rate_are_refused(clock: Clock) -> None:
    load = load_of(clock, requests_per_minute=2)
    load.start(1000)
    load.start(1000)
    with pytest.raises(
        RateLimitError, match="'ann' has used its 2 requests per minute; try again in 30 s"
    ) as caught:
        load.start(1)
    assert caught.value.retry_after_s == pytest.approx(30, abs=1e-3)
    clock.now += caught.value.retry_after_s
    load.start(1)


def test_prompts_and_outputs_count_as_tokens(clock: Clock) -> None:
    load = load_of(clock, tokens_per_minute=60)
    load.start(20)
    load.note_output(40)
    with pytest.raises(RateLimitError, match="'ann' has used its 60 tokens per minute"):
        load.start(10)
    clock.now += 10
    load.start(10)


def test_a_refused_request_counts_nothing(clock: Clock) -> None:
    load = load_of(clock, requests_per_minute=1, tokens_per_minute=10)
    load.start(10)
    load.give_back(10)
    load.start(10)
    for _ in range(3):
        with pytest.raises(RateLimitError):
            load.start(10)
    clock.now += 60
    load.start(10)


async def test_deferrable_requests_leave_half_to_others(clock: Clock) -> None:
    load = load_of(clock, requests_per_minute=4)
    started = [asyncio.create_task(load.start_deferrable(1)) for _ in range(4)]
    await turns()
    assert [task.done() for task in started] == [True, True, False, False]
    load.start(1)
    load.start(1)
    with pytest.raises(RateLimitError):
        load.start(1)
    clock.now += 45
    await turns()
    assert [task.done() for task in started] == [True, True, True, False]
    clock.now += 15
    await asyncio.gather(*started)


@pytest.mark.parametrize("per_minute", [1, 2, 3])
async def test_small_limits_let_deferrable_requests_pass(clock: Clock, per_minute: int) -> None:
    load = load_of(clock, requests_per_minute=per_minute, tokens_per_minute=per_minute)
    async with asyncio.timeout(5):
        await load.start_deferrable(1000)


async def test_deferrable_requests_have_the_same_number_at_once(clock: Clock) -> None:
    limits: list[TenantLimits | None] = [TenantLimits(max_requests=2)]
    load = TenantLoad("ann", lambda: limits[0], clock)
    started = [asyncio.create_task(load.start_deferrable(1)) for _ in range(4)]
    await turns()
    assert [task.done() for task in started] == [True, True, False, False]
    load.leave()
    await turns()
    assert [task.done() for task in started] == [True, True, True, False]
    limits[0] = None  # changed limits hold for those that wait
    await asyncio.gather(*started)


async def test_a_cancelled_wait_lets_the_next_pass(clock: Clock) -> None:
    load = load_of(clock, max_requests=1)
    await load.start_deferrable(1)
    first, second = (asyncio.create_task(load.start_deferrable(1)) for _ in range(2))
    await turns()
    first.cancel()
    load.leave()
    await asyncio.wait_for(second, 5)


def keyring(tmp_path: Path, text: str = "ann=one\nbob=two max_requests=3\n") -> Keyring:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)
    return Keyring(ServerConfig(served_model_name="m", api_key_file=str(path), authenticators="jwt"))


def test_limits_of_keys_are_those_of_the_file(tmp_path: Path, clock: Clock) -> None:
    loads = TenantLoads(keyring(tmp_path), clock)
    assert loads.of("ann") is None
    load = loads.of("bob")
    assert load is not None
    assert load.limits == TenantLimits(max_requests=3)
    assert loads.of("bob") is load


def test_the_last_principal_decides(tmp_path: Path, clock: Clock) -> None:
    loads = TenantLoads(keyring(tmp_path), clock)
    loads.note(Known("jwt/eve", None, TenantLimits(requests_per_minute=1)))
    load = loads.of("jwt/eve")
    assert load is not None
    load.start(1)
    loads.note(Known("jwt/eve", None, TenantLimits(requests_per_minute=2)))
    assert loads.of("jwt/eve") is load
    with pytest.raises(RateLimitError, match="2 requests per minute"):
        load.start(1)
    loads.note(Known("jwt/eve"))
    assert loads.of("jwt/eve") is None


def test_the_number_of_kept_tenants_is_bounded(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_loads, "MAX_TENANTS", 2)
    loads = TenantLoads(keyring(tmp_path), clock)
    for name in "abc":
        loads.note(Known(f"jwt/{name}", None, TenantLimits(max_requests=1)))
    assert [loads.of(f"jwt/{name}") is None for name in "abc"] == [True, False, False]


@pytest.mark.parametrize("limits", [{"requests_per_minute": 4}, {"max_requests": 2}])
async def test_lines_wait_before_they_take_a_place(clock: Clock, limits: dict[str, int]) -> None:
    """As many are let through as can start."""
    load = load_of(clock, **limits)
    let_through = [asyncio.create_task(load.ready()) for _ in range(4)]
    await asyncio.sleep(0)
    assert sum(task.done() for task in let_through) <= 2
    await load.start_deferrable(1)
    await load.start_deferrable(1)
    await turns()
    assert sum(task.done() for task in let_through) == 2
    clock.now += 60
    load.leave()
    load.leave()
    await asyncio.gather(*let_through)


async def test_lines_that_never_start_hold_no_one_up(clock: Clock) -> None:
    load = load_of(clock, max_requests=1)
    async with asyncio.timeout(5):
        for _ in range(20):
            await load.ready()
