"""Builds what computes steps: storage, attention backend, sampler, logits processors, executor and graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from llmfw.core.interfaces.kv_dtype import choose_kv_dtype, dtype_name
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.device.devices import gigabytes
from llmfw.core.model.parallel.rank_group import RankGroup
from llmfw.core.model.weights.kv_scales import choose_scales
from llmfw.core.step.device.page_table import PageTable
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.device.step_clock import StepClock
from llmfw.core.step.executor import Executor
from llmfw.core.step.graphs import Graph, cuda_graphs
from llmfw.core.step.processors.isolated_processor import IsolatedProcessor
from llmfw.core.step.processors.processor_rows import ProcessorRows
from llmfw.core.step.sampling.checked_token_sampler import CheckedTokenSampler
from llmfw.core.step.sampling.sampler import Sampler
from llmfw.core.step.tokens import input_ids

from .attention_choice import choose_attention
from .foundation import Foundation
from .memory_plan import graph_sizes
from .processors import build_processors
from .states import state_storage
from .step_faults import StepFaults
from .token_sampler_choice import choose_token_sampler

logger = logging.getLogger(__name__)

MakeGraph = Callable[[], Graph]


@dataclass(frozen=True, slots=True)
class BuiltExecutor:
    """An executor, and the objects that were built with it.

    Attributes:
        executor: executor of steps.
        attention: name of the attention backend; both names if prompts have another backend.
        storage: storage of keys and values.
        faults: finds the cause of a failed step.
        processors: logits processors that requests may ask for.
    """

    executor: Executor
    attention: str
    storage: KVStorage
    faults: StepFaults
    processors: Sequence[IsolatedProcessor]


def build_executor(
    foundation: Foundation, make_graph: MakeGraph | None = None, clock: StepClock | None = None
) -> BuiltExecutor:
    """Allocate storage, build the attention backend, the sampler, the logits processors and the executor, and
    capture graphs if they are used.

    Args:
        make_graph: function that creates a graph, which captures a step; None: CUDA graphs on a CUDA device,
            else none.
        clock: measures all steps.

    Raises:
        ComponentError: no attention backend can serve the model, no token sampler can be used, or a logits
            processor cannot be built.
        ModelError: the checkpoint's scales of keys and values cannot be used.
    """
    config, registry, device = foundation.config, foundation.registry, foundation.device
    model, capacity = foundation.model, foundation.capacity
    if make_graph is None and device.type == "cuda":
        make_graph = cuda_graphs()
    # If host and device share their memory and no step is captured, neither copies nor padding are needed.
    is_shared = make_graph is None
    storage = _storage(foundation, num_padding=0 if is_shared else 1)
    attention = choose_attention(config, registry, model, device, storage)
    staging = Staging(device, packs=not is_shared)
    page_table = _page_table(foundation, staging, is_shared=is_shared)
    drawing = choose_token_sampler(
        config.token_sampler, registry, model.vocab_size, device, may_wait=is_shared
    )
    sampler = Sampler(capacity.max_running, model.vocab_size, device, CheckedTokenSampler(drawing), staging)
    faults = StepFaults(registry, device, attention, drawing.entry)
    processors = build_processors(config, registry, model.vocab_size, device)
    rows = ProcessorRows(processors, capacity.max_running, staging, device) if processors else None
    states = state_storage(config, model, capacity, device)
    group = foundation.group
    executor = Executor(
        *(model, attention.backend, sampler, page_table, staging, device, clock, faults.users, rows, states),
        read_ids=input_ids if group is None else partial(_ids_of_first, group),
    )
    if make_graph is not None and capacity.max_graph_size:
        reason = attention.backend.graph_unsupported()
        if reason is None:
            sizes = graph_sizes(capacity.max_graph_size)
            capture_all = config.cuda_graph == "on"
            executor.use_graphs(make_graph, sizes, capture_all=capture_all, describe=faults.describe)
        else:
            logger.info("No CUDA graphs: attention backend %s: %s", attention.decode.name, reason)
    return BuiltExecutor(executor, attention.name, storage, faults, processors)


def _ids_of_first(
    group: RankGroup, known: torch.Tensor, sources: torch.Tensor, last_tokens: torch.Tensor
) -> torch.Tensor:
    """Return the input tokens of a step, [T], as rank 0 knows them: it alone samples."""
    return group.copy_from_first(input_ids(known, sources, last_tokens))


def _page_table(foundation: Foundation, staging: Staging, *, is_shared: bool) -> PageTable:
    capacity, page_size = foundation.capacity, foundation.config.page_size
    return PageTable(
        capacity.max_running,
        -(-capacity.max_model_len // page_size),
        page_size,
        staging,
        foundation.device,
        padding_page=0 if is_shared else capacity.num_pages,
    )


def _storage(foundation: Foundation, *, num_padding: int) -> KVStorage:
    config, model, capacity = foundation.config, foundation.model, foundation.capacity
    stored_as = choose_kv_dtype(config.kv_cache_dtype, model.dtype)
    scales = choose_scales(model.weights, model.layers, stored_as)
    num_pages = capacity.num_pages + num_padding
    storage = KVStorage(
        model.layers,
        num_pages,
        config.page_size,
        model.dtype,
        foundation.device,
        stored_as=stored_as,
        scales=scales,
    )
    keys, values = storage.num_bytes
    logger.info(
        "KV Cache is allocated. #tokens: %d, dtype: %s, K size: %s, V size: %s",
        *(capacity.num_pages * config.page_size, dtype_name(stored_as), gigabytes(keys), gigabytes(values)),
    )
    return storage
