"""Decides the capacity of an engine: sizes that the user leaves open, by device and model.

The engine logs these values and sends them to clients in `EngineInfo`; it never writes them back into the
config.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.kv_dtype import choose_kv_dtype
from llmfw.core.interfaces.kv_storage import bytes_per_token
from llmfw.core.interfaces.state_storage import snapshot_bytes, state_bytes
from llmfw.core.model.device.devices import available_memory, companions, gigabytes, total_memory
from llmfw.core.model.models import LoadedModel
from llmfw.core.model.probe.state_probe import take_pieces
from llmfw.core.schedule.speculation import max_batch_tokens

from .memory_plan import (
    DeviceMemory,
    ModelShape,
    StepSizes,
    StorageSettings,
    default_snapshots,
    plan_memory,
)
from .sequence_sizes import SequenceSizes, assumed_attention_bytes

logger = logging.getLogger(__name__)

DEFAULT_MEM_FRACTION = {"cuda": 0.88, "cpu": 0.3}
DEFAULT_MAX_RUNNING = {"cuda": 512, "cpu": 128}
DEFAULT_CHUNK = {"cuda": 8192, "cpu": 512}
DEFAULT_GRAPH_SIZE = 512
NUM_TABLES = 2
"""Page tables on the host: the scheduler's and the executor's."""
ROW_BYTES = 128
"""Additional host memory of a sequence, in bytes: the numbers that steps keep for each row."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity of an engine.

    Attributes:
        num_pages: number of pages of key and value storage.
        max_model_len: maximum length of a sequence in tokens: the model's context length, or the size of the
            whole KV cache if that is smaller.
        max_running: maximum number of sequences in one step.
        prefill_budget: maximum number of prompt tokens in one step.
        chunked: whether a prompt may be split to fit the budget.
        max_graph_size: maximum number of sequences in a captured step; 0: no step is captured.
        num_snapshots: number of snapshots of states that the prefix cache may keep.
    """

    num_pages: int
    max_model_len: int
    max_running: int
    prefill_budget: int
    chunked: bool
    max_graph_size: int
    num_snapshots: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes by name."""
        return asdict(self)


AttentionBytes = Callable[[StepSizes, int], int]
"""(sizes of the largest steps, maximum number of pages of a sequence) → memory of the attention backend in bytes."""


def _assumed(steps: StepSizes, num_pages: int) -> int:
    return assumed_attention_bytes(steps.max_graph_size, num_pages)


def decide_capacity(
    config: EngineConfig,
    model: LoadedModel,
    device: torch.device,
    *,
    captures: bool = False,
    attention_bytes: AttentionBytes = _assumed,
) -> Capacity:
    """Return the capacity that the device has in addition to the loaded model.

    Args:
        captures: whether steps can be captured even if the device is not CUDA.
        attention_bytes: returns the memory that the attention backend takes on a GPU.

    Raises:
        ConfigError: a setting is out of range, or the memory is too small.
    """
    max_running = config.max_running_requests or DEFAULT_MAX_RUNNING[device.type]
    page_size = config.page_size
    chunk = config.chunked_prefill_size
    chunked = chunk is None or chunk > 0
    budget = config.max_prefill_tokens if not chunked else chunk or DEFAULT_CHUNK[device.type]
    can_capture = (captures or device.type == "cuda") and not model.states
    graph_size = _max_graph_size(config, max_running) if can_capture else 0
    num_tokens, num_snapshots = config.max_total_tokens, max_snapshots(config, model)
    if device.type == "cuda":
        steps = StepSizes(budget, max_running, graph_size)
        sequences = SequenceSizes(max_running, model.context_length, partial(attention_bytes, steps))
        num_tokens, num_snapshots = _sizes_on_gpu(config, model, device, steps, sequences, num_snapshots)
    elif num_tokens is None:
        num_tokens, num_snapshots = _sizes_that_fit(config, model, device, max_running, num_snapshots)
    else:
        num_snapshots = _snapshots_that_fit(config, model, device, num_tokens, max_running, num_snapshots)
    num_pages = num_tokens // page_size
    if num_pages * page_size < 2:
        raise ConfigError(
            f"--max-total-tokens is {num_tokens}; at least one page of {page_size}, and 2 tokens, are needed"
        )
    max_model_len = min(model.context_length, num_pages * page_size)
    if max_model_len < model.context_length:
        logger.warning(
            "The pool holds %d tokens, less than the context of %d: longer requests are refused.",
            *(max_model_len, model.context_length),
        )
    _check_tables(max_running, max_model_len, page_size)
    return Capacity(
        num_pages=num_pages,
        max_model_len=max_model_len,
        max_running=max_running,
        prefill_budget=budget,
        chunked=chunked,
        max_graph_size=graph_size,
        num_snapshots=num_snapshots,
    )


def max_snapshots(config: EngineConfig, model: LoadedModel) -> int | None:
    """Return the maximum number of snapshots of states that the settings allow; None: as many as are useful.

    By default, there are no snapshots if the model computes the tokens after a cached prefix one by one. That
    can take longer than the whole prompt at once.
    """
    if not model.states or config.disable_radix_cache:
        return 0
    if config.max_state_snapshots is None and not take_pieces(model.module):
        return 0
    return config.max_state_snapshots


def _check_tables(max_running: int, max_model_len: int, page_size: int) -> None:
    """Raise ConfigError if the page tables of `max_running` sequences do not fit into the host's memory."""
    needed = max_running * (NUM_TABLES * 4 * -(-max_model_len // page_size) + ROW_BYTES)
    free = available_memory(torch.device("cpu"))
    if needed > free:
        raise ConfigError(
            f"--max-running-requests is {max_running}; page tables for that number of sequences, of up to {max_model_len} tokens "
            f"each, take {gigabytes(needed)}, and {gigabytes(free)} of memory are free; lower it"
        )


def shape_of(model: LoadedModel) -> ModelShape:
    """Return the sizes of a model that determine its memory."""
    hf_config: Any = model.module.config
    config = hf_config.get_text_config(decoder=True)
    hidden = int(config.hidden_size)
    widths = [int(getattr(config, "intermediate_size", None) or 4 * hidden)]
    if experts := getattr(config, "num_experts_per_tok", None):
        widths.append(int(experts * getattr(config, "moe_intermediate_size", widths[0])))
    queries = [spec.num_heads * spec.head_dim for spec in model.layers]
    stored = [spec.num_kv_elements for spec in model.layers]
    return ModelShape(
        num_weight_bytes=model.num_bytes,
        num_kv_elements=sum(stored),
        hidden_size=hidden,
        query_width=max(queries, default=0),
        qkv_width=max(map(sum, zip(queries, stored, strict=True)), default=0),
        intermediate_size=max(widths),
        vocab_size=model.vocab_size,
        dtype_bytes=model.dtype.itemsize,
        num_state_bytes=state_bytes(model.states),
        num_packed_bytes=snapshot_bytes(model.states, is_packed=True),
        num_adapter_bytes=_adapter_bytes(model),
        num_image_bytes=_image_bytes(model),
    )


def _loaded_bytes(model: LoadedModel) -> int:
    """Return the size of the weights, of the slots for adapters and of the encoded images in bytes."""
    return model.num_bytes + _adapter_bytes(model) + _image_bytes(model)


def _adapter_bytes(model: LoadedModel) -> int:
    """Return the size of the model's slots for adapters in bytes."""
    return 0 if model.adapters is None else model.adapters.num_bytes


def _image_bytes(model: LoadedModel) -> int:
    """Return the size of the encoded images that are kept, in bytes."""
    return 0 if model.images is None else model.images.cache_bytes


def _sizes_on_gpu(
    config: EngineConfig,
    model: LoadedModel,
    device: torch.device,
    steps: StepSizes,
    sequences: SequenceSizes,
    num_snapshots: int | None,
) -> tuple[int, int]:
    """Return how many tokens the KV storage will hold, and how many snapshots of states will be kept.

    Logs the planned use of the memory.

    Args:
        steps: sizes of steps without drafts.
        sequences: sizes of the sequences.
        num_snapshots: number of snapshots; None: chosen by `default_snapshots`.
    """
    asked = config.max_total_tokens
    torch.cuda.empty_cache()  # frees memory that merging projections left unused
    fraction = _fraction(config, model, device) if asked is None else 1.0
    with_drafts = max(steps.max_running, max_batch_tokens(config, device.type))
    storage = StorageSettings(
        dtype_bytes=choose_kv_dtype(config.kv_cache_dtype, model.dtype).itemsize,
        page_size=config.page_size,
        max_tokens=steps.max_running * model.context_length if asked is None else asked,
        max_snapshots=num_snapshots,
        packs_snapshots=config.state_snapshot_dtype == "int8",
    )
    plan = plan_memory(
        shape_of(model),
        DeviceMemory(total_memory(device), fraction, available_memory(device)),
        replace(steps, max_running=with_drafts),
        storage,
        sequences,
    )
    if asked is not None and plan.num_tokens < asked // config.page_size * config.page_size:
        raise ConfigError(
            f"--max-total-tokens is {asked}; after the weights and the memory that steps need, {plan.num_tokens} tokens "
            f"fit on {device}; lower it"
        )
    for what, size in plan.items:
        logger.info("Memory: %s: %s", what, gigabytes(size))
    return plan.num_tokens, plan.num_snapshots


def _max_graph_size(config: EngineConfig, max_running: int) -> int:
    asked = config.cuda_graph_max_bs
    if config.cuda_graph == "off":
        return 0
    return min(DEFAULT_GRAPH_SIZE if asked is None else asked, max_running)


def static_fraction(config: EngineConfig, device: torch.device) -> float:
    """Return the fraction of a device's memory for weights and KV caches of all engines that share it."""
    return config.mem_fraction_static or DEFAULT_MEM_FRACTION[device.type]


def _fraction(config: EngineConfig, model: LoadedModel, device: torch.device) -> float:
    """Return the fraction of memory for this engine's weights and KV cache.

    Replicas share a CPU's memory evenly. Engines of different models in one memory have their own weights, and
    an even share of what all weights together leave.
    """
    fraction, place = static_fraction(config, device), config.place
    if not place.model:
        return fraction if device.type == "cuda" else fraction / _num_processes(config)
    others = companions(config.device, place)
    total, loaded = total_memory(device), _loaded_bytes(model)
    left = fraction * total - loaded - sum(place.weights[index] for index in others)
    return (loaded + left / (1 + len(others))) / total


def _free_memory(config: EngineConfig, model: LoadedModel, device: torch.device) -> int:
    """Return the free memory that this process may use, in bytes, after its weights were loaded.

    On a CPU, this is an equal share of the memory that is left once all engines and ranks have loaded their weights.
    The others may not have loaded their weights yet, so these weights are always subtracted.
    """
    free, place, count = available_memory(device), config.place, _num_processes(config)
    if device.type == "cuda" or count == 1:
        return free
    others = sum(place.weights) - place.weights[place.index] if place.model else (count - 1) * model.num_bytes
    return max(0, free - others) // count


def _num_processes(config: EngineConfig) -> int:
    """Return the number of processes, engines and their ranks, that share a CPU's memory."""
    return config.place.count * config.tp


def _kv_bytes(config: EngineConfig, model: LoadedModel, num_tokens: int) -> int:
    """Return the size of the keys and values of `num_tokens` tokens in bytes."""
    return num_tokens * bytes_per_token(model.layers, choose_kv_dtype(config.kv_cache_dtype, model.dtype))


def missing_memory(
    config: EngineConfig,
    model: LoadedModel,
    device: torch.device,
    num_tokens: int,
    num_sequences: int = 0,
    num_snapshots: int = 0,
) -> str | None:
    """Return why the keys and values of `num_tokens` tokens, and the states of sequences and snapshots, do not fit
    into memory; None if they fit.

    The reason is a relative clause for an error message. It states the memory that they need, and the free
    memory.
    """
    needed, free = _kv_bytes(config, model, num_tokens), _free_memory(config, model, device)
    states = num_sequences * state_bytes(model.states) + num_snapshots * _snapshot_bytes(config, model)
    if needed + states <= free:
        return None
    if states:
        return (
            f"whose keys and values take {gigabytes(needed)}, and {num_sequences + num_snapshots} states of sequences and snapshots "
            f"{gigabytes(states)}; with the weights loaded, {gigabytes(free)} of memory are free"
        )
    return f"whose keys and values take {gigabytes(needed)}; with the weights loaded, {gigabytes(free)} of memory are free"


def _snapshot_bytes(config: EngineConfig, model: LoadedModel) -> int:
    """Return the size of one snapshot of states in bytes."""
    return snapshot_bytes(model.states, is_packed=config.state_snapshot_dtype == "int8")


def _snapshots_that_fit(
    config: EngineConfig,
    model: LoadedModel,
    device: torch.device,
    num_tokens: int,
    max_running: int,
    num_snapshots: int | None,
) -> int:
    """Return the number of snapshots of states in addition to the keys and values of `num_tokens` tokens.

    Args:
        num_snapshots: number of snapshots; None: chosen by `default_snapshots`.

    Raises:
        ConfigError: the snapshots, keys, values and states do not fit into memory.
    """
    if num_snapshots is None:
        room = (
            _free_memory(config, model, device)
            - _kv_bytes(config, model, num_tokens)
            - max_running * state_bytes(model.states)
        )
        num_snapshots = default_snapshots(room, _snapshot_bytes(config, model), max_running)
    if lack := missing_memory(config, model, device, num_tokens, max_running, num_snapshots):
        raise ConfigError(f"--max-total-tokens is {num_tokens}, {lack}; lower it")
    return num_snapshots


def _sizes_that_fit(
    config: EngineConfig,
    model: LoadedModel,
    device: torch.device,
    max_running: int,
    num_snapshots: int | None,
) -> tuple[int, int]:
    """Return the number of tokens whose keys and values fit, and the number of snapshots. The states of
    `max_running` sequences and of the snapshots must fit, too. The number of tokens is at most a full context
    for each sequence.

    Args:
        num_snapshots: number of snapshots; None: chosen by `default_snapshots`.
    """
    fraction, most = _fraction(config, model, device), max_running * model.context_length
    room = min(fraction * total_memory(device) - _loaded_bytes(model), _free_memory(config, model, device))
    states = max_running * state_bytes(model.states)
    if states > room:
        raise ConfigError(
            f"the states of {max_running} sequences take {gigabytes(states)}; {gigabytes(max(0, room))} are left within "
            f"{fraction:.0%} of {gigabytes(total_memory(device))}; lower --max-running-requests"
        )
    room -= states
    if num_snapshots is None:
        num_snapshots = default_snapshots(room, _snapshot_bytes(config, model), max_running)
    snapshots = num_snapshots * _snapshot_bytes(config, model)
    if snapshots > room:
        raise ConfigError(
            f"--max-state-snapshots is {num_snapshots}, which take {gigabytes(snapshots)}; {gigabytes(room)} are left within "
            f"{fraction:.0%} of {gigabytes(total_memory(device))}; lower it"
        )
    room -= snapshots
    page_bytes = _kv_bytes(config, model, config.page_size)
    if not page_bytes:
        return most, num_snapshots
    if room < page_bytes:
        raise ConfigError(
            f"weights of {gigabytes(model.num_bytes)} leave no room for keys and values within {fraction:.0%} of "
            f"{gigabytes(total_memory(device))}; raise --mem-fraction-static"
        )
    return min(int(room // (page_bytes / config.page_size)), most), num_snapshots
