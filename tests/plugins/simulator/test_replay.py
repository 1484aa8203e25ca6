"""Requests go through the real scheduler in virtual time, and what happens to them is what the trace asks for."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from llmfw.core.client.replicas.isolated_router import IsolatedRouter
from llmfw.plugins.policies.lpm import LPM
from llmfw.plugins.routers.prefix import Prefix
from llmfw.plugins.simulator.bounds import infinite_hit_rate
from llmfw.plugins.simulator.figures import figures_of
from llmfw.plugins.simulator.ledger import Ledger
from llmfw.plugins.simulator.replica import EngineSettings

from .traces import ENGINE, FLAT, ROUTERS, line, many, read, replayed, router


def test_a_single_request_takes_its_steps_times(tmp_path):
    trace = read(tmp_path, [line(0, list(range(9)), 3)])  # 144 tokens in chunks of 64: three steps
    ledger = replayed(trace)
    assert (ledger.begun[0], ledger.first[0], ledger.last[0]) == (0, 3, 5)
    assert ledger.gaps.tolist() == [1, 1]


def test_arrivals_wait_for_the_current_step(tmp_path):
    ledger = replayed(read(tmp_path, [line(0, [1], 5), line(1500, [2], 1), line(2000, [3], 1)]))
    assert ledger.begun.tolist() == [0, 2, 2]  # what comes at the very end of a step is seen


def test_a_computed_prefix_is_found(tmp_path):
    trace = read(tmp_path, [line(0, [1, 2, 3], 1), line(5000, [1, 2, 4], 1), line(9000, [1, 2], 1)])
    assert replayed(trace).cached.tolist() == [0, 32, 16]  # of the last one, its last page is computed


def test_the_next_turn_finds_known_answers(tmp_path):
    turns = [line(0, [1], 20, output_hash_ids=[2, 3]), line(60_000, [1, 2, 4], 1)]
    assert replayed(read(tmp_path, turns)).cached.tolist() == [0, 32]


def test_salts_share_nothing(tmp_path):
    trace = read(tmp_path, [line(0, [1, 2], 1), line(5000, [1, 2], 1, cache_salt="other")])
    assert replayed(trace).cached.tolist() == [0, 0]


def test_outputs_end_as_the_trace_says(tmp_path):
    ledger = replayed(read(tmp_path, [line(0, [1], 3, max_tokens=50), line(0, [2], 3)]))
    assert ledger.last.tolist() == [3, 3]


def test_too_large_requests_are_refused_and_counted(tmp_path):
    trace = read(
        tmp_path, [line(0, list(range(300)), 1), line(0, [1], 4000, max_tokens=5000), line(0, [1], 2)]
    )
    ledger = replayed(trace)
    assert ledger.served.tolist() == [False, False, True]
    assert figures_of(ledger, trace, FLAT, 64)["refused"] == 2


def test_speed_compresses_arrival_times(tmp_path):
    trace = read(tmp_path, [line(0, [1], 1), line(10_000, [2], 1)])
    assert replayed(trace, speed=4.0).arrived.tolist() == [0, 2.5]


def test_http_overhead_precedes_the_first_token(tmp_path):
    ledger = replayed(
        read(tmp_path, [line(0, [1], 2)]), profile=msgspec.structs.replace(FLAT, per_request=0.5)
    )
    assert (ledger.arrived[0], ledger.first[0], ledger.last[0]) == (0, 1.5, 2.5)


def test_overlap_hides_the_host_and_delays_arrivals(tmp_path):
    trace = read(tmp_path, [line(0, [1], 9), line(1500, [2], 1)])
    ledger = replayed(trace, profile=msgspec.structs.replace(FLAT, points=[(0, 1.0), (1, 1.0)], overlap=True))
    assert ledger.last[0] == 9  # not 18
    assert ledger.first[1] == 4  # planned at 2, when the step from 2 to 3 had been planned already


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kv_tokens", [160, 480, 4096])
def test_all_requests_finish_with_little_memory(tmp_path, kv_tokens, overlap):
    trace = read(tmp_path, many(60))
    profile = msgspec.structs.replace(FLAT, overlap=overlap, points=[(0, 1.0), (1, 1.0)])
    ledger = replayed(trace, EngineSettings(kv_tokens, 16, 8, 64), profile=profile, speed=4.0)
    assert ledger.served.all()
    assert len(ledger.gaps) + len(trace) == sum(request.output_len for request in trace)
    assert (ledger.begun >= ledger.arrived).all()
    assert (ledger.first > ledger.begun).all()


def test_retractions_lose_nothing(tmp_path):
    trace = read(tmp_path, [line(0, [i], 200) for i in range(8)])
    ledger = replayed(trace, EngineSettings(800, 16, 8, 64))
    assert ledger.num_retractions > 0
    assert ledger.served.all()


@pytest.mark.parametrize("name", ROUTERS)
def test_replays_are_deterministic(tmp_path, name):
    trace = read(tmp_path, many(80))
    runs = [
        replayed(
            trace,
            EngineSettings(640, 16, 8, 64),
            policy=LPM,
            router=router(name),
            num_replicas=3,
            speed=10.0,
        )
        for _ in range(2)
    ]
    for array in ("arrived", "begun", "first", "last", "cached", "replica", "gaps"):
        assert getattr(runs[0], array).tobytes() == getattr(runs[1], array).tobytes()


def test_hit_rates_stay_below_the_infinite_bound(tmp_path):
    trace = read(tmp_path, many(100))
    ledger = replayed(trace)
    assert 0 < figures_of(ledger, trace, FLAT, 64)["hit_rate"] <= infinite_hit_rate(trace)


def test_round_robin_alternates_replicas(tmp_path):
    trace = read(tmp_path, [line(i, [i], 1) for i in range(6)])
    assert replayed(trace, num_replicas=3).replica.tolist() == [0, 1, 2, 0, 1, 2]


def test_the_load_router_picks_the_fewest_tokens(tmp_path):
    trace = read(
        tmp_path, [line(0, list(range(20)), 1), line(0, [21], 1), line(0, [22], 1), line(0, [23], 1)]
    )
    assert replayed(trace, router=router("load"), num_replicas=2).replica.tolist() == [0, 1, 1, 1]


def test_the_prefix_router_follows_the_longest_prefix(tmp_path):
    """If all replicas have it, load decides."""
    family = [
        line(0, [1, 2, 3], 1),
        line(0, [9, 8, 7], 1),
        line(20_000, [1, 2, 4], 1),
        line(40_000, [9, 8, 5], 1),
    ]
    trace = read(tmp_path, family)
    assert replayed(trace, router=router("prefix"), num_replicas=2).replica.tolist() == [0, 1, 0, 1]
    crowd = [line(0, [1, 2, 3], 1), *(line(20_000, [1, 2, 3, i], 1) for i in range(4, 24))]
    chosen = replayed(read(tmp_path, crowd), router=router("prefix"), num_replicas=2).replica
    assert 5 <= chosen.sum() <= 15


class Seeing(Prefix):
    """Chooses as `prefix`, and keeps what it saw."""

    def __init__(self):
        super().__init__(self.Options())
        self.seen = []

    def choose(self, request, replicas):
        self.seen.append(replicas)
        return super().choose(request, replicas)


def test_routers_see_what_a_server_shows(tmp_path):
    """Matches and speeds by the reports after each step, and the requests that wait and run."""
    lines = [line(0, [1, 2, 3], 4), line(500, [1, 2, 9], 1), line(2500, [1, 2, 3], 1), line(60_000, [7], 1)]
    seeing = Seeing()
    ledger = replayed(read(tmp_path, lines), router=IsolatedRouter(seeing), num_replicas=2)
    assert ledger.replica.tolist() == [0, 0, 0, 1]
    first, second, third, last = seeing.seen
    assert [(each.num_waiting, each.match_tokens, each.tokens_per_s) for each in first] == [(0, 0, 0)] * 2
    # Its prefix is being computed for the first one.
    assert (second[0].num_waiting, second[0].queued_tokens, second[0].match_tokens) == (1, 48, 32)
    # After the first step, of 48 tokens, and the second one, of one and 16 tokens.
    assert (third[0].num_waiting, third[0].num_running, third[0].match_tokens) == (0, 1, 47)
    assert third[0].tokens_per_s == pytest.approx((0.95 * 48 + 16) / 1.95, rel=0.1)
    assert [(each.num_waiting, each.num_running, each.queued_tokens) for each in last] == [(0, 0, 0)] * 2


def test_evicted_prefixes_no_longer_match(tmp_path):
    """The router learns of the eviction, which a router that guesses would not."""
    lines = [line(0, [1, 2, 3, 4], 1), line(10_000, [*range(10, 18)], 1), line(20_000, [1, 2, 3, 4], 1)]
    seeing = Seeing()
    replayed(
        read(tmp_path, lines), EngineSettings(144, 16, 8, 64), router=IsolatedRouter(seeing), num_replicas=2
    )
    assert [each.match_tokens for each in seeing.seen[2]] == [63, 0]  # the second went to the other engine
    seeing = Seeing()
    lines[1:1] = [line(5_000, [*range(20, 28)], 1)]
    replayed(
        read(tmp_path, lines), EngineSettings(144, 16, 8, 64), router=IsolatedRouter(seeing), num_replicas=2
    )
    assert sum(each.match_tokens for each in seeing.seen[3]) < 63


def test_figures_equal_a_hand_made_ledger(tmp_path):
    trace = read(tmp_path, [line(0, [1, 2], 2, tenant=tenant) for tenant in "aab"])
    ledger = Ledger(3)
    for number in range(3):
        ledger.arrived[number], ledger.replica[number] = 0.0, 0
    for number, begun, cached, overtaken in [(1, 0.0, 8, 0), (2, 1.0, 16, 0), (0, 2.0, 0, 2)]:
        ledger.begin(number, begun, cached, overtaken)
        ledger.sampled(np.array([number]), begun + 1)
    ledger.sampled(np.array([0, 1, 2]), 4.0)
    figures = figures_of(ledger, trace, FLAT, 64)
    assert figures["hit_rate"] == 24 / 96
    assert (figures["ttft_p50_ms"], figures["itl_p50_ms"]) == (2000, 2000)
    assert (figures["output_tok_s"], figures["makespan_s"]) == (1.5, 4.0)
    assert (figures["longest_wait_s"], figures["most_overtaken"]) == (2.0, 2)
    assert figures["fairness"] == 1.0  # both tenants took 4 s, where each alone takes 2


def test_fairness_is_jain_s_index_of_slowdowns(tmp_path):
    trace = read(tmp_path, [line(0, [1], 1, tenant="a"), line(0, [2], 3, tenant="b")])
    ledger = replayed(trace, EngineSettings(4096, 16, 1, 64))  # b waits for a: slowdowns 1 and 4 / 3
    expected = (1 + 4 / 3) ** 2 / (2 * (1 + 16 / 9))
    assert figures_of(ledger, trace, FLAT, 64)["fairness"] == pytest.approx(expected, abs=1e-6)


def test_figures_work_without_served_requests(tmp_path):
    trace = read(tmp_path, [line(0, list(range(300)), 1)])
    figures = figures_of(replayed(trace, ENGINE), trace, FLAT, 64)
    assert (figures["refused"], figures["ttft_p50_ms"], figures["hit_rate"]) == (1, None, 0.0)
