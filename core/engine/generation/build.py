"""Builds an engine that generates, from the settings.

settings ──► model ──► capacity ──► pages, scheduler      no tensors
                               └──► executor              storage, attention backend, sampler, graphs
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.interfaces.drafter import Drafter
from llmfw.core.interfaces.kv_dtype import check_kv_dtype, choose_kv_dtype, dtype_name
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.model.device.devices import available_memory, choose_device
from llmfw.core.model.models import LoadedModel, load_model
from llmfw.core.plugin.choice import Created
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule, choose_rule, isolated_rule
from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache, PrefixCache
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.cache.snapshot_cache import SnapshotCache
from llmfw.core.schedule.cache.snapshots import SnapshotSlots
from llmfw.core.schedule.decision_log import DecisionLog
from llmfw.core.schedule.deferral import Limits
from llmfw.core.schedule.mask_filler import MaskFiller
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.speculation import Speculation, build_speculation, choose_drafter
from llmfw.core.schedule.trace import DecisionTrace, together
from llmfw.core.step.device.step_clock import StepClock
from llmfw.core.step.executor import Executor
from llmfw.core.step.recording import RecordingExecutor, RecordingHeader, StepWriter

from ..admission.admission_control import AdmissionControl
from ..admission.queue_gate import QueueGate
from .administration import Administration
from .attention_choice import check_attention
from .built_executor import BuiltExecutor, MakeGraph, build_executor
from .capacity import Capacity, decide_capacity
from .deferrable_budget import DeferrableBudget
from .engine import Engine
from .grammars import choose_grammars
from .kv_prefaulter import KVPrefaulter, pages_ahead
from .loops import LoopContext, OverlappedLoop, PlainLoop
from .piece_budget import PieceBudget
from .planning import Planning
from .policy_choice import PolicyChoice
from .processors import check_processors
from .recorder import Recorder
from .states import check_states
from .step_faults import StepFaults
from .step_log import StepLog
from .step_meter import StepMeter

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Named:
    """Components that are looked up by the names in the config, before the weights are read."""

    policies: PolicyChoice
    drafter: Created[Drafter] | None
    rule: IsolatedRule


def build_generation_engine(
    config: EngineConfig,
    registry: Registry,
    trace: DecisionTrace | None = None,
    make_graph: MakeGraph | None = None,
    clock: StepClock | None = None,
) -> Engine:
    """Load the model and build the components that the config names.

    Args:
        trace: receives the scheduler's decisions.
        make_graph: function that creates a graph, which captures a step; None: chosen by the device.
        clock: measures all steps.

    Raises:
        ConfigError: the model or a component cannot be found, loaded or used; the message gives the reason.
    """
    recorder = _recorder(config)
    step_writer = StepWriter(config.record_steps) if config.record_steps is not None else None
    device = choose_device(config.device)
    named = _check_names(config, registry)
    model = load_model(config, device, registry)
    grammars = choose_grammars(config, registry, model.vocab_size)
    check_states(config, model)
    capacity = decide_capacity(config, model, device, captures=make_graph is not None)
    planning = _planning(config, registry, named, model, capacity, device, together(trace, recorder))
    built = build_executor(config, registry, model, capacity, device, make_graph, clock)
    executor = _recorded(built.executor, step_writer, config, capacity, model.vocab_size)
    masks = MaskFiller(model.vocab_size, grammars.fill_masks, grammars.hasten)
    overlaps = _overlaps(config, device, planning.speculation)
    context = _loop_context(config, capacity, planning, executor, masks, built.faults, overlaps=overlaps)
    return Engine(
        _info(config, model, capacity, device, built),
        context,
        OverlappedLoop(context) if overlaps else PlainLoop(context),
        planning,
        grammars,
        AdmissionControl(QueueGate.of(config, capacity.max_running, planning.pages.num_total_tokens)),
        registry.ledger,
        KVPrefaulter(
            built.storage, planning.pages.pool, pages_ahead(built.storage, available_memory(device))
        ),
        built.processors,
        random_seed=config.random_seed,
    )


def _recorder(config: EngineConfig) -> Recorder | None:
    """Return the recorder of requests that the config asks for; None: requests are not recorded."""
    if config.record_requests is None:
        return None
    return Recorder(config.record_requests, config.page_size)


def _recorded(
    executor: Executor, writer: StepWriter | None, config: EngineConfig, capacity: Capacity, vocab_size: int
) -> Executor | RecordingExecutor:
    """Return an executor whose steps are recorded; the executor itself if there is no writer of steps."""
    if writer is None:
        return executor
    writer.start(RecordingHeader.of(config, capacity.as_dict(), vocab_size))
    return RecordingExecutor(executor, writer)


def _overlaps(config: EngineConfig, device: torch.device, speculation: Speculation | None) -> bool:
    """Return whether a step is planned while the one before it runs. By default, on CUDA without drafts."""
    if config.overlap is not None:
        return config.overlap
    return device.type == "cuda" and not speculation


def _check_names(config: EngineConfig, registry: Registry) -> _Named:
    """Look up all names in the config before the weights are read, which may take minutes.

    Raises:
        ConfigError: a component or one of its options does not exist.
        ComponentError: a component cannot be imported or built.
    """
    policies = PolicyChoice(registry, config.policy, config.options)
    check_attention(config, registry)
    drafter = choose_drafter(config, registry)
    rule = isolated_rule(registry, choose_rule(registry, config.eviction, config.options))
    check_kv_dtype(config.kv_cache_dtype)
    check_processors(config, registry)
    return _Named(policies, drafter, rule)


def _planning(
    config: EngineConfig,
    registry: Registry,
    named: _Named,
    model: LoadedModel,
    capacity: Capacity,
    device: torch.device,
    trace: DecisionTrace | None,
) -> Planning:
    decisions = DecisionLog(config.trace_requests) if config.trace_requests else None
    trace = together(trace, decisions)
    pages = _pages(config, capacity, named.rule, keeps_states=bool(model.states))
    speculation = build_speculation(config, registry, named.drafter, model.vocab_size, device.type)
    scheduler = _scheduler(config, capacity, pages, named.policies.policy, trace, speculation)
    keeper = _keeper(config, capacity, pages)
    administration = Administration(scheduler, named.policies, keeper, decisions)
    return Planning(scheduler, pages, speculation, keeper, administration)


def _loop_context(
    config: EngineConfig,
    capacity: Capacity,
    planning: Planning,
    executor: Executor | RecordingExecutor,
    masks: MaskFiller,
    faults: StepFaults,
    *,
    overlaps: bool,
) -> LoopContext:
    limits = Limits(capacity.max_running, capacity.prefill_budget)
    return LoopContext(
        planning.scheduler,
        executor,
        masks,
        StepLog(planning.scheduler, planning.pages, config.decode_log_interval, planning.speculation),
        DeferrableBudget(limits, num_ahead=2 if overlaps else 1),
        PieceBudget(capacity.prefill_budget, stretch=config.prefill_stretch),
        faults,
        StepMeter(),
    )


def _pages(
    config: EngineConfig, capacity: Capacity, rule: IsolatedRule, *, keeps_states: bool
) -> SequencePages:
    pool = KVPool(capacity.num_pages, config.page_size)
    cache: PrefixCache
    if config.disable_radix_cache or (keeps_states and not capacity.num_snapshots):
        cache = NoPrefixCache()
    elif keeps_states:
        slots = SnapshotSlots(capacity.max_running, capacity.num_snapshots)
        cache = SnapshotCache(pool, slots, rule)
    else:
        cache = RadixCache(pool, rule)
    return SequencePages(pool, cache, capacity.max_running, capacity.max_model_len)


def _keeper(config: EngineConfig, capacity: Capacity, pages: SequencePages) -> CacheKeeper:
    most_pinned = int(config.max_pinned_fraction * capacity.num_pages) * config.page_size
    return CacheKeeper(pages.cache, pages.pool, most_pinned, time.monotonic, config.eviction)


def _scheduler(
    config: EngineConfig,
    capacity: Capacity,
    pages: SequencePages,
    policy: SchedulePolicy,
    trace: DecisionTrace | None,
    speculation: Speculation | None,
) -> Scheduler:
    return Scheduler(
        pages,
        policy,
        NewTokenRatio(config.schedule_conservativeness),
        max_running=capacity.max_running,
        prefill_budget=capacity.prefill_budget,
        chunked=capacity.chunked,
        share=config.batch_share,
        trace=trace,
        speculation=speculation,
    )


def _info(
    config: EngineConfig, model: LoadedModel, capacity: Capacity, device: torch.device, built: BuiltExecutor
) -> EngineInfo:
    """Return the description of the engine, and log its capacity."""
    info = EngineInfo(
        model=config.model,
        architecture=model.architecture,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(device),
        vocab_size=model.vocab_size,
        max_model_len=capacity.max_model_len,
        max_total_tokens=capacity.num_pages * config.page_size,
        max_running_requests=capacity.max_running,
        attention=built.attention,
        policy=config.policy,
        weight_version="dummy" if model.weights is None else model.weights.version(),
        module_passes=model.module_passes,
        quantization=config.quantization,
        kv_cache_dtype=dtype_name(choose_kv_dtype(config.kv_cache_dtype, model.dtype)),
        logits_processors=tuple(each.name for each in built.processors),
    )
    logger.info(
        "max_total_num_tokens=%d, chunked_prefill_size=%d, max_prefill_tokens=%d, max_running_requests=%d, "
        "context_len=%d",
        info.max_total_tokens,
        capacity.prefill_budget if capacity.chunked else -1,
        config.max_prefill_tokens,
        info.max_running_requests,
        info.max_model_len,
    )
    return info
