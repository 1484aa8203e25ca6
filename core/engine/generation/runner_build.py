"""Puts together what runs steps: storage, attention backend, sampler, page table, runner and graphs."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.interfaces.kv_dtype import choose_kv_dtype, dtype_name
from llmfw.core.interfaces.kv_storage import KVStorage
from llmfw.core.model.devices import gigabytes
from llmfw.core.model.kv_scales import choose_scales
from llmfw.core.model.models import LoadedModel
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.step.device.page_table import PageTable
from llmfw.core.step.device.staging import Staging
from llmfw.core.step.device.step_clock import StepClock
from llmfw.core.step.graphs import Graph, cuda_graphs
from llmfw.core.step.model_runner import ModelRunner
from llmfw.core.step.sampling.sampler import Sampler

from .attention_choice import choose_attention
from .capacity import Capacity
from .memory_plan import graph_sizes

logger = logging.getLogger(__name__)

MakeGraph = Callable[[], Graph]


def build_runner(
    config: EngineConfig,
    registry: Registry,
    model: LoadedModel,
    capacity: Capacity,
    pages: SequencePages,
    device: torch.device,
    make_graph: MakeGraph | None = None,
    clock: StepClock | None = None,
) -> tuple[str, ModelRunner, KVStorage]:
    """Allocate, build, and capture what is to be captured; return the attention backend's name, runner and storage.

    Args:
        capacity: what fits.
        pages: the scheduler's.
        make_graph: makes what captures a step; None: CUDA graphs where there is CUDA, else nothing.
        clock: measures all steps.

    Raises:
        PartError: no attention backend can serve the model.
        ModelError: the checkpoint's scales of keys and values cannot be used.
    """
    if make_graph is None and device.type == "cuda":
        make_graph = cuda_graphs()
    # Where host and device have one memory and nothing is captured, there is nothing to copy and no padding.
    is_shared = make_graph is None
    num_pages = capacity.num_pages + (0 if is_shared else 1)
    stored_as = choose_kv_dtype(config.kv_cache_dtype, model.dtype)
    scales = choose_scales(config.model, config.load_format, model.layers, stored_as)
    storage = KVStorage(
        model.layers, num_pages, config.page_size, model.dtype, device, stored_as=stored_as, scales=scales
    )
    keys, values = storage.num_bytes
    logger.info(
        "KV Cache is allocated. #tokens: %d, dtype: %s, K size: %s, V size: %s",
        *(capacity.num_pages * config.page_size, dtype_name(stored_as), gigabytes(keys), gigabytes(values)),
    )
    name, backend = choose_attention(config, registry, model, device, storage)
    staging = Staging(device, packs=not is_shared)
    page_table = PageTable(
        pages.table,
        pages.clean,
        config.page_size,
        device,
        padding_page=capacity.num_pages,
        is_shared=is_shared,
    )
    sampler = Sampler(capacity.max_running, model.vocab_size, device, staging)
    runner = ModelRunner(model, backend, sampler, page_table, staging, device, clock)
    if make_graph is not None and capacity.max_graph_size:
        reason = backend.graph_unsupported()
        if reason is None:
            sizes = graph_sizes(capacity.max_graph_size)
            runner.use_graphs(make_graph, sizes, capture_all=config.cuda_graph == "on")
        else:
            logger.info("No CUDA graphs: attention backend %s: %s", name, reason)
    return name, runner, storage
