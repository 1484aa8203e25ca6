"""`llmfw top` shows what the engine computes, in any terminal, and nothing that a client's text could do to it."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from llmfw.api.cli import build_cli
from llmfw.core import EngineStats, RequestView, StepsView
from llmfw.plugins.page.feed import Frame
from llmfw.plugins.page.top.picture import picture
from llmfw.plugins.page.top.rates import RateMeter, Rates, rates_between, sparkline
from llmfw.plugins.page.top.session import at_intervals

from ...doubles.serving import Served

COUNTS = st.integers(0, 10**9)
RATES = Rates(output=1e6, prompt=1e6, steps=1e3, cached_share=0.5, accepted_share=0.25, busy_share=1.0)


def top(*arguments: object) -> Result:
    return CliRunner().invoke(build_cli(), ["top", *map(str, arguments)])


def stats(**given: Any) -> EngineStats:
    known = {
        "num_running": 2,
        "num_waiting": 1,
        "num_used_tokens": 50,
        "num_cached_tokens": 25,
        "num_total_tokens": 100,
    }
    return EngineStats(**known | given)


def request(
    number: int = 1, id: str = "req_1", tenant: str = "", reason: str = "", **given: Any
) -> RequestView:
    known = {"deferrable": False, "prompt_tokens": 100, "num_tokens": 100, "num_computed": 100}
    return RequestView(number=number, id=id, tenant=tenant, reason=reason, **known | given)


def frame(running: list[RequestView], waiting: list[RequestView], num_waiting: int | None = None) -> Frame:
    count = len(waiting) if num_waiting is None else num_waiting
    return Frame(at=0, stats=stats(), steps=StepsView([], running, waiting, [], count))


def test_a_server_is_shown_once_without_a_terminal(demo: Served) -> None:
    shown = top("--url", demo.url, "--interval", 0.1)
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.startswith("running 0   waiting 0   retractions 0\nKV cache ░")
    assert "output  0 tok/s" in shown.stdout
    assert "request          tenant" in shown.stdout


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("http://127.0.0.1:9", "Error: http://127.0.0.1:9 cannot be reached any more: "),
        ("no:sense", "Error: --url 'no:sense' is not a URL"),
        ("{demo}/absent", "answers 404: it is not an llmfw server, or was started with --no-plugin page"),
    ],
)
def test_an_unreachable_server_is_one_line(demo: Served, url: str, named: str) -> None:
    shown = top("--url", url.replace("{demo}", demo.url))
    assert (shown.exit_code, len(shown.stderr.splitlines())) == (1, 1)
    assert named in shown.stderr


def test_waiting_requests_have_their_reason() -> None:
    waits = request(2, "req_2", "ann", "no room in the KV cache")
    prefills = request(1, num_computed=25)
    decodes = request(3, "req_3", num_tokens=150, num_computed=149, deferrable=True)
    lines = picture(frame([prefills, decodes], [waits]), None, [], 80, 24)
    assert lines[-3:] == [
        "req_2            ann               100        0  no room in the KV cache",
        "req_1                              100        0  prefill ██░░░░░░░░ 25",
        "req_3                              100       50  batch decode",
    ]


def test_hidden_requests_are_counted() -> None:
    lines = picture(
        frame([request(i) for i in range(100)], [request(reason="r")] * 50, 80), RATES, [1], 80, 24
    )
    assert len(lines) == 24
    shown = sum(line.startswith("req_1") for line in lines)
    assert lines[-1] == f"{180 - shown} more"


@given(st.text(max_size=40), st.text(max_size=40), st.integers(1, 200), st.integers(1, 60), COUNTS, COUNTS)
def test_a_picture_fits_and_acts_on_nothing(
    tenant: str, reason: str, width: int, height: int, waiting: int, total: int
) -> None:
    shown = frame([request(tenant=tenant)] * 9, [request(tenant=tenant, reason=reason)] * 9, 9 + waiting)
    shown.stats = stats(num_total_tokens=total)
    shown.problem = reason
    lines = picture(shown, RATES, [0.0, 1.0], width, height)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert not {unicodedata.category(char) for line in lines for char in line} & {
        "Cc",
        "Cf",
        "Cs",
        "Zl",
        "Zp",
    }


def test_rates_equal_a_hand_calculated_interval() -> None:
    before = stats(
        num_generated_tokens=100, num_prompt_tokens=50, num_prompt_cached=10, num_steps=5, idle_seconds=1.0
    )
    now = stats(
        num_generated_tokens=300,
        num_prompt_tokens=150,
        num_prompt_cached=60,
        num_steps=25,
        idle_seconds=2.0,
        num_drafted_tokens=8,
        num_accepted_tokens=2,
    )
    assert rates_between(before, now, 2.0) == Rates(100.0, 25.0, 10.0, 0.5, 0.25, 0.5)


def test_a_restarted_engine_has_no_rates_at_first() -> None:
    meter = RateMeter()
    assert meter.next(0.0, stats(num_steps=5)) is None
    assert meter.next(1.0, stats(num_steps=9)) is not None
    assert meter.next(2.0, stats(num_steps=1)) is None
    assert meter.next(3.0, stats(num_steps=2)) is not None


def test_bars_are_scaled_to_the_highest() -> None:
    assert sparkline([0, 4, 8], 10) == " ▄█"
    assert sparkline([0, 0], 10) == "  "
    assert sparkline(range(100), 3) == "███"
    assert sparkline([], 3) == ""


def test_frames_are_thinned_out_by_their_times() -> None:
    found = at_intervals(iter(Frame(at=each / 10) for each in range(35)), 1.0)
    assert [each.at for each in found] == [0.0, 1.0, 2.0, 3.0]
