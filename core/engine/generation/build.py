"""Builds an engine that generates, from the settings.

settings ──► model ──► capacity ──► pages, scheduler      no tensors
                               └──► executor              storage, attention backend, sampler, graphs
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from functools import partial

import msgspec
import torch

from llmfw.core.base.adapter_name import split_adapters
from llmfw.core.base.config import EngineConfig
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.interfaces.kv_dtype import choose_kv_dtype, dtype_name
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.device.devices import available_memory, choose_device, on_device
from llmfw.core.model.models import load_model
from llmfw.core.model.parallel.tensor_parallel import check_divisible
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.deferral import Limits
from llmfw.core.schedule.mask_filler import MaskFiller
from llmfw.core.schedule.speculation import Speculation
from llmfw.core.schedule.trace import DecisionTrace, together
from llmfw.core.step.device.step_clock import StepClock
from llmfw.core.step.executor import Executor
from llmfw.core.step.recording import RecordingExecutor, RecordingHeader, StepWriter

from ..admission.admission_control import AdmissionControl
from ..admission.queue_gate import QueueGate
from ..ranks.group_executor import GroupExecutor
from ..ranks.rank_processes import RankProcesses
from .adapters import EngineAdapters
from .attention_choice import attention_bytes
from .built_executor import BuiltExecutor, MakeGraph, build_executor
from .capacity import decide_capacity
from .deferrable_budget import DeferrableBudget
from .divided_engine import DividedEngine
from .engine import Engine
from .foundation import Foundation
from .grammars import Grammars, choose_grammars
from .images import EngineImages
from .kv_prefaulter import KVPrefaulter, pages_ahead
from .loops import LoopContext, OverlappedLoop, PlainLoop
from .named_components import find_components
from .piece_budget import PieceBudget
from .planning import Planning, build_planning
from .request_recorder import RequestRecorder
from .states import check_states
from .step_faults import StepFaults
from .step_log import StepLog
from .step_meter import StepMeter

logger = logging.getLogger(__name__)


def build_generation_engine(
    config: EngineConfig,
    registry: Registry,
    trace: DecisionTrace | None = None,
    make_graph: MakeGraph | None = None,
    clock: StepClock | None = None,
    ranks: RankProcesses | None = None,
) -> Engine:
    """Load the model and build the components that the config names.

    Args:
        trace: receives the scheduler's decisions.
        make_graph: function that creates a graph, which captures a step; None: chosen by the device.
        clock: measures all steps.
        ranks: processes of the other ranks, with `--tp`; None: they are started here.

    Raises:
        ConfigError: the model or a component cannot be found, loaded or used; the message gives the reason.
    """
    # Checks that need no model come first, because reading the weights takes minutes.
    recorder, step_writer = _recorder(config), _step_writer(config)
    device = choose_device(config.device, config.place)
    check_divisible(config, device.type)
    components = find_components(config, registry)
    ranks = ranks or RankProcesses.of(config)
    with on_device(device), nullcontext() if ranks is None else ranks.starting():
        group = None if ranks is None else ranks.join()
        model = load_model(config, device, registry, group)
        adapters = EngineAdapters(model.adapters, config.max_loaded_adapters)
        adapters.load_now(split_adapters(config.adapters))
        grammars = choose_grammars(config, registry, model.vocab_size)
        check_states(config, model)
        capacity = decide_capacity(
            config,
            model,
            device,
            captures=make_graph is not None,
            attention_bytes=partial(attention_bytes, config, registry, model, device),
        )
        if ranks is not None:
            ranks.send(msgspec.msgpack.encode(capacity))
        foundation = Foundation(config, registry, device, model, capacity, group)
        planning = build_planning(foundation, components, adapters, together(trace, recorder))
        built = build_executor(foundation, make_graph, clock)
        executor = _executor(built.executor, step_writer, foundation, ranks)
        overlaps = _overlaps(config, device, planning.speculation)
        context = _loop_context(foundation, planning, grammars, executor, built.faults, overlaps=overlaps)
        engine = Engine if ranks is None else partial(DividedEngine, ranks)
        return engine(
            _info(foundation, built, adapters),
            context,
            OverlappedLoop(context) if overlaps else PlainLoop(context),
            planning,
            grammars,
            AdmissionControl(QueueGate.of(config, capacity.max_running, planning.pages.num_total_tokens)),
            registry.ledger,
            _kv_prefaulter(built.storage, planning.pages.pool, device),
            adapters,
            built.processors,
            EngineImages(model.images),
            random_seed=config.random_seed,
        )


def _recorder(config: EngineConfig) -> RequestRecorder | None:
    """Return the recorder of requests that the config asks for; None: requests are not recorded."""
    if config.record_requests is None:
        return None
    return RequestRecorder(config.record_requests, config.page_size)


def _step_writer(config: EngineConfig) -> StepWriter | None:
    """Return the writer of steps that the config asks for; None: steps are not recorded."""
    return StepWriter(config.record_steps) if config.record_steps is not None else None


def _executor(
    executor: Executor, writer: StepWriter | None, foundation: Foundation, ranks: RankProcesses | None
) -> Executor | RecordingExecutor | GroupExecutor:
    """Return an executor whose steps are recorded, or are sent to the other ranks, too; else the executor itself."""
    if ranks is not None:
        ranks.wait_done()
        return GroupExecutor(executor, ranks)
    if writer is None:
        return executor
    capacity, vocab_size = foundation.capacity.as_dict(), foundation.model.vocab_size
    writer.start(RecordingHeader.of(foundation.config, capacity, vocab_size))
    return RecordingExecutor(executor, writer)


def _kv_prefaulter(storage: KVStorage, pool: KVPool, device: torch.device) -> KVPrefaulter:
    return KVPrefaulter(storage, pool, pages_ahead(storage, available_memory(device)))


def _overlaps(config: EngineConfig, device: torch.device, speculation: Speculation | None) -> bool:
    """Return whether a step is planned while the one before it runs. By default, on CUDA without drafts."""
    if config.overlap is not None:
        return config.overlap
    return device.type == "cuda" and not speculation


def _loop_context(
    foundation: Foundation,
    planning: Planning,
    grammars: Grammars,
    executor: Executor | RecordingExecutor | GroupExecutor,
    faults: StepFaults,
    *,
    overlaps: bool,
) -> LoopContext:
    config, capacity = foundation.config, foundation.capacity
    limits = Limits(capacity.max_running, capacity.prefill_budget)
    return LoopContext(
        planning.scheduler,
        executor,
        MaskFiller(foundation.model.vocab_size, grammars.fill_masks, grammars.hasten),
        StepLog(planning.scheduler, planning.pages, config.decode_log_interval, planning.speculation),
        DeferrableBudget(limits, num_ahead=2 if overlaps else 1),
        PieceBudget(capacity.prefill_budget, stretch=config.prefill_stretch),
        faults,
        StepMeter(),
    )


def _info(foundation: Foundation, built: BuiltExecutor, adapters: EngineAdapters) -> EngineInfo:
    """Return the description of the engine, and log its capacity."""
    config, model, capacity = foundation.config, foundation.model, foundation.capacity
    info = EngineInfo(
        model=config.model,
        architecture=model.architecture,
        dtype=str(model.dtype).removeprefix("torch."),
        device=str(foundation.device),
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
        adapters=tuple(adapters.list().adapters),
        max_adapters=0 if model.adapters is None else model.adapters.num_slots,
        reads_images=model.images is not None,
        uncounted_token=model.uncounted_token,
        media_processor="" if model.images is None else model.images.processor,
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
