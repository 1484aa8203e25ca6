"""Builds an engine that generates, from the settings.

settings ──► model ──► capacity ──► pages, scheduler      no tensors
                               └──► executor              storage, attention backend, sampler, graphs
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.interfaces.drafter import Drafter
from llmfw.core.interfaces.kv_dtype import check_kv_dtype, choose_kv_dtype, dtype_name
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.model.devices import available_memory, choose_device, gigabytes
from llmfw.core.model.kv_scales import choose_scales
from llmfw.core.model.models import LoadedModel, load_model
from llmfw.core.plugin.choice import Created
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule, choose_rule, isolated_rule
from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.decision_log import DecisionLog
from llmfw.core.schedule.deferral import Limits
from llmfw.core.schedule.mask_filler import MaskFiller
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.speculation import Speculation, build_speculation, choose_drafter
from llmfw.core.schedule.trace import DecisionTrace, together
from llmfw.core.step.device.page_table import PageTable
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.device.step_clock import StepClock
from llmfw.core.step.executor import Executor
from llmfw.core.step.graphs import Graph, cuda_graphs
from llmfw.core.step.processors.isolated_processor import IsolatedProcessor
from llmfw.core.step.processors.processor_rows import ProcessorRows
from llmfw.core.step.recording import RecordingExecutor, RecordingHeader, StepWriter
from llmfw.core.step.sampling.sampler import Sampler

from ..admission.admission_control import AdmissionControl
from ..admission.queue_gate import QueueGate
from .administration import Administration
from .attention_choice import check_attention, choose_attention
from .capacity import Capacity, decide_capacity
from .deferrable_budget import DeferrableBudget
from .engine import Engine
from .grammars import choose_grammars
from .kv_prefaulter import KVPrefaulter, pages_ahead
from .loops import LoopContext, OverlappedLoop, PlainLoop
from .memory_plan import graph_sizes
from .piece_budget import PieceBudget
from .policy_choice import PolicyChoice
from .processors import build_processors, check_processors
from .recorder import Recorder
from .states import check_states, state_storage
from .step_faults import StepFaults
from .step_log import StepLog
from .step_meter import StepMeter

logger = logging.getLogger(__name__)

MakeGraph = Callable[[], Graph]


@dataclass(frozen=True, slots=True)
class BuiltExecutor:
    """An executor, and what was built with it.

    Attributes:
        executor: executor of steps.
        attention: name of the attention backend.
        storage: storage of keys and values.
        faults: finds the cause of a failed step.
        processors: logits processors that requests may ask for.
    """

    executor: Executor
    attention: str
    storage: KVStorage
    faults: StepFaults
    processors: Sequence[IsolatedProcessor]


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
    policies, drafter, rule = _check_names(config, registry)
    model = load_model(config, device, registry)
    grammars = choose_grammars(config, registry, model.vocab_size)
    check_states(config, model)
    capacity = decide_capacity(config, model, device, captures=make_graph is not None)
    pages = _pages(config, capacity, rule, caches_prefixes=not model.states)
    decisions = DecisionLog(config.trace_requests) if config.trace_requests else None
    speculation = build_speculation(config, registry, drafter, model.vocab_size, device.type)
    trace = together(trace, decisions, recorder)
    scheduler = _scheduler(config, capacity, pages, policies.policy, trace, speculation)
    keeper = _keeper(config, capacity, pages)
    built = build_executor(config, registry, model, capacity, device, make_graph, clock)
    executor: Executor | RecordingExecutor = built.executor
    if step_writer is not None:
        step_writer.start(RecordingHeader.of(config, capacity.as_dict(), model.vocab_size))
        executor = RecordingExecutor(built.executor, step_writer)
    overlaps = _overlaps(config, device, speculation)
    context = LoopContext(
        scheduler,
        executor,
        MaskFiller(model.vocab_size, grammars.fill_masks, grammars.hasten),
        StepLog(scheduler, pages, config.decode_log_interval, speculation),
        DeferrableBudget(
            Limits(capacity.max_running, capacity.prefill_budget), num_ahead=2 if overlaps else 1
        ),
        PieceBudget(capacity.prefill_budget, stretch=config.prefill_stretch),
        built.faults,
        StepMeter(),
    )
    return Engine(
        _info(config, model, capacity, device, built),
        context,
        OverlappedLoop(context) if overlaps else PlainLoop(context),
        pages,
        grammars,
        keeper,
        Administration(scheduler, policies, keeper, decisions),
        AdmissionControl(QueueGate.of(config, capacity.max_running, pages.num_total_tokens)),
        registry.ledger,
        KVPrefaulter(built.storage, pages.pool, pages_ahead(built.storage, available_memory(device))),
        speculation,
        built.processors,
        random_seed=config.random_seed,
    )


def _recorder(config: EngineConfig) -> Recorder | None:
    """Return the recorder of requests that the config asks for; None: requests are not recorded."""
    if config.record_requests is None:
        return None
    return Recorder(config.record_requests, config.page_size)


def _overlaps(config: EngineConfig, device: torch.device, speculation: Speculation | None) -> bool:
    """Return whether a step is planned while the one before it runs. By default, on CUDA without drafts."""
    if config.overlap is not None:
        return config.overlap
    return device.type == "cuda" and not speculation


def _check_names(
    config: EngineConfig, registry: Registry
) -> tuple[PolicyChoice, Created[Drafter] | None, IsolatedRule]:
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
    return policies, drafter, rule


def build_executor(
    config: EngineConfig,
    registry: Registry,
    model: LoadedModel,
    capacity: Capacity,
    device: torch.device,
    make_graph: MakeGraph | None = None,
    clock: StepClock | None = None,
) -> BuiltExecutor:
    """Allocate storage, build the attention backend, the sampler, the logits processors and the executor, and
    capture graphs if they are used.

    Args:
        capacity: capacity of the engine.
        make_graph: function that creates a graph, which captures a step; None: CUDA graphs on a CUDA device,
            else none.
        clock: measures all steps.

    Raises:
        ComponentError: no attention backend can serve the model, or a logits processor cannot be built.
        ModelError: the checkpoint's scales of keys and values cannot be used.
    """
    if make_graph is None and device.type == "cuda":
        make_graph = cuda_graphs()
    # If host and device share their memory and no step is captured, neither copies nor padding are needed.
    is_shared = make_graph is None
    storage = _storage(config, model, capacity, device, num_padding=0 if is_shared else 1)
    name, backend = choose_attention(config, registry, model, device, storage)
    staging = Staging(device, packs=not is_shared)
    page_table = PageTable(
        capacity.max_running,
        -(-capacity.max_model_len // config.page_size),
        config.page_size,
        staging,
        device,
        padding_page=0 if is_shared else capacity.num_pages,
    )
    sampler = Sampler(capacity.max_running, model.vocab_size, device, staging)
    faults = StepFaults(registry, device, name)
    processors = build_processors(config, registry, model.vocab_size, device)
    rows = ProcessorRows(processors, capacity.max_running, staging, device) if processors else None
    states = state_storage(model, capacity, device)
    executor = Executor(
        model, backend, sampler, page_table, staging, device, clock, faults.users, rows, states
    )
    if make_graph is not None and capacity.max_graph_size:
        reason = backend.graph_unsupported()
        if reason is None:
            sizes = graph_sizes(capacity.max_graph_size)
            executor.use_graphs(make_graph, sizes, capture_all=config.cuda_graph == "on")
        else:
            logger.info("No CUDA graphs: attention backend %s: %s", name, reason)
    return BuiltExecutor(executor, name, storage, faults, processors)


def _storage(
    config: EngineConfig, model: LoadedModel, capacity: Capacity, device: torch.device, *, num_padding: int
) -> KVStorage:
    stored_as = choose_kv_dtype(config.kv_cache_dtype, model.dtype)
    scales = choose_scales(model.weights, model.layers, stored_as)
    num_pages = capacity.num_pages + num_padding
    storage = KVStorage(
        model.layers, num_pages, config.page_size, model.dtype, device, stored_as=stored_as, scales=scales
    )
    keys, values = storage.num_bytes
    logger.info(
        "KV Cache is allocated. #tokens: %d, dtype: %s, K size: %s, V size: %s",
        *(capacity.num_pages * config.page_size, dtype_name(stored_as), gigabytes(keys), gigabytes(values)),
    )
    return storage


def _pages(
    config: EngineConfig, capacity: Capacity, rule: IsolatedRule, *, caches_prefixes: bool
) -> SequencePages:
    pool = KVPool(capacity.num_pages, config.page_size)
    is_off = config.disable_radix_cache or not caches_prefixes
    cache = NoPrefixCache() if is_off else RadixCache(pool, rule)
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
