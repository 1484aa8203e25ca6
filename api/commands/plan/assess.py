"""Computes what fits on a device, and which changes would help if a model does not. Prints nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from llmfw.core.base.errors import ConfigError
from llmfw.core.engine.generation.memory_plan import (
    DeviceMemory,
    MemoryPlan,
    ModelShape,
    StepSizes,
    StorageSettings,
    plan_memory,
)
from llmfw.core.engine.generation.sequence_sizes import SequenceSizes, assumed_attention_bytes

from .choices import ADAPTER_RANK, CHUNK, DTYPE_BYTES, FRACTION, KV_BYTES, MAX_RUNNING
from .devices import GIB, Device, all_by_size
from .numbers import ModelNumbers
from .states import MeasuredStates

LENGTHS = (512, 2048, 8192, 32768, 131072)
"""Request lengths, in tokens, for which results are shown by default."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of `llmfw serve` that affect memory. If `context` is None, the model's context applies."""

    dtype: str
    kv_dtype: str
    fraction: float = FRACTION
    max_running: int = MAX_RUNNING
    chunk: int = CHUNK
    graphs: int = MAX_RUNNING
    context: int | None = None
    quantization: str | None = None
    replicas: int = 1
    tp: int = 1
    adapters: int = 0
    adapter_rank: int = ADAPTER_RANK
    image_cache_mb: int = 0
    max_state_snapshots: int | None = None
    state_snapshot_dtype: str = "auto"


@dataclass(frozen=True, slots=True)
class Model:
    """A model to plan memory for: its dimensions, and the size of its weights.

    Attributes:
        numbers: dimensions from config.json.
        weights: dtype → total size of all weights in this dtype, in bytes.
        source: source of the weights' size, such as "weight files".
    """

    numbers: ModelNumbers
    weights: dict[str, int]
    source: str

    def shape(self, settings: Settings) -> ModelShape:
        """Return the sizes that determine how much memory the model, or one rank's part of it, needs.

        Raises:
            ConfigError: the heads cannot be divided among the ranks.
        """
        numbers, dtype_bytes = self.numbers, DTYPE_BYTES[settings.dtype]
        if numbers.states is not None:
            return self._shape_with_states(numbers.states, settings)
        tp = settings.tp
        if numbers.heads % tp or (numbers.kv_heads % tp and tp % numbers.kv_heads):
            raise ConfigError(
                f"--tp is {tp}; it must divide the model's {numbers.heads} heads, and divide its {numbers.kv_heads} "
                "heads of keys and values or be a multiple of them"
            )
        shape = ModelShape.uniform(
            num_weight_bytes=-(-self.weights[settings.dtype] // tp),
            num_layers=numbers.layers,
            num_heads=numbers.heads // tp,
            num_kv_heads=max(1, numbers.kv_heads // tp),
            head_dim=numbers.head_dim,
            v_head_dim=numbers.v_head_dim,
            hidden_size=numbers.hidden,
            intermediate_size=-(-numbers.intermediate // tp),
            vocab_size=numbers.vocab,
            dtype_bytes=dtype_bytes,
        )
        ranks = settings.adapters * settings.adapter_rank
        return replace(
            shape,
            num_adapter_bytes=ranks * numbers.adapter_elements * dtype_bytes,
            num_image_bytes=settings.image_cache_mb << 20 if numbers.reads_images else 0,
        )

    def _shape_with_states(self, states: MeasuredStates, settings: Settings) -> ModelShape:
        """Return the sizes of a model whose layers keep states.

        Raises:
            ConfigError: the settings ask for ranks, which such models cannot have, or for slots for adapters, which
                are not counted for them.
        """
        if settings.tp > 1:
            raise ConfigError(
                f"--tp is {settings.tp}, and the model's layers keep states, which are not divided among ranks; leave it out"
            )
        if settings.adapters:
            raise ConfigError(
                "slots for adapters are not counted for a model whose layers keep states; leave out --max-adapters"
            )
        return replace(
            ModelShape(**states.shapes[settings.dtype]),
            num_weight_bytes=self.weights[settings.dtype],
            num_image_bytes=settings.image_cache_mb << 20 if self.numbers.reads_images else 0,
        )

    def _max_snapshots(self, settings: Settings) -> int | None:
        """Return the maximum number of snapshots of states, as `capacity.max_snapshots` does."""
        states = self.numbers.states
        if states is None:
            return 0
        if settings.max_state_snapshots is None and not states.takes_pieces:
            return 0
        return settings.max_state_snapshots

    def context(self, settings: Settings) -> int | None:
        """Return the longest allowed sequence in tokens; None if neither the settings nor the model limit it.

        Raises:
            ConfigError: the settings ask for more than the model supports, or for nothing, and a model with states has
                no longest sequence of its own.
        """
        own = self.numbers.context
        if own is None and settings.context is None and self.numbers.states is not None:
            raise ConfigError("the model's config names no longest sequence; give --context-length")
        if settings.context is not None and own is not None and settings.context > own:
            raise ConfigError(
                f"--context-length is {settings.context}; this model can be served with up to {own} tokens"
            )
        return settings.context or own

    def plan(self, settings: Settings, device: Device) -> MemoryPlan:
        """Return a plan of the device memory that uses at most the share `settings.fraction`.

        Raises:
            ConfigError: the model does not fit; the message gives the reason.
        """
        context = self.context(settings)
        if (num_bytes := self.weights[settings.dtype] // settings.tp) > device.num_bytes:
            raise ConfigError(
                f"the weights alone have {num_bytes / GIB:.2f} GiB, the device has {device.num_bytes / GIB:.2f}"
            )
        graphs, max_running = min(settings.graphs, settings.max_running), settings.max_running
        if self.numbers.states is not None:
            graphs = 0  # steps of models with states are not captured
        return plan_memory(
            self.shape(settings),
            DeviceMemory(device.num_bytes, settings.fraction),
            StepSizes(settings.chunk, max_running, graphs),
            StorageSettings(
                KV_BYTES[settings.kv_dtype],
                max_tokens=max_running * context if context else None,
                max_snapshots=self._max_snapshots(settings),
                packs_snapshots=settings.state_snapshot_dtype == "int8",
            ),
            SequenceSizes(max_running, context, partial(assumed_attention_bytes, graphs)),
        )


def help_for(model: Model, settings: Settings, device: Device, wanted: int) -> list[str]:
    """Return changes of the settings or of the device, as text.

    Each change alone makes a sequence of `wanted` tokens fit.
    """
    found = []
    for flag, changed in _changes(model, settings):
        if (num_tokens := _num_tokens(model, changed, device)) >= wanted:
            found.append(f"{flag}: {num_tokens:,} tokens")
    larger = [other for other in all_by_size() if other.num_bytes > device.num_bytes]
    fitting = ((other, _num_tokens(model, settings, other)) for other in larger)
    first = next(((other, tokens) for other, tokens in fitting if tokens >= wanted), None)
    if first is not None:
        found.append(f"--device {first[0].name}: {first[1]:,} tokens")
    return found


def _changes(model: Model, settings: Settings) -> list[tuple[str, Settings]]:
    changes = []
    if settings.dtype == "float32":
        kv = "bfloat16" if settings.kv_dtype == "float32" else settings.kv_dtype
        changes.append(("--dtype bfloat16", replace(settings, dtype="bfloat16", kv_dtype=kv)))
    if KV_BYTES[settings.kv_dtype] > 1:
        changes.append(("--kv-cache-dtype fp8_e4m3", replace(settings, kv_dtype="fp8_e4m3")))
    if settings.fraction < 0.95:
        changes.append(("--mem-fraction-static 0.95", replace(settings, fraction=0.95)))
    if settings.chunk > 1024:
        changes.append(("--chunked-prefill-size 1024", replace(settings, chunk=1024)))
    if settings.max_running > 32:
        changes.append(("--max-running-requests 32", replace(settings, max_running=32)))
    return [(flag, changed) for flag, changed in changes if changed.dtype in model.weights]


def _num_tokens(model: Model, settings: Settings, device: Device) -> int:
    try:
        return model.plan(settings, device).num_tokens
    except ConfigError:
        return 0


def describe(model: Model, settings: Settings, device: Device, lengths: tuple[int, ...]) -> dict[str, Any]:
    """Return the whole assessment as JSON-compatible data.

    Returns:
        A dict with "fits", "model", "device", "settings" and "notes". If the model fits, also "items",
        "free_bytes", "tokens" and "requests". If the model or a sequence of the whole context does not fit,
        also "reason" and "would_help".
    """
    context = model.context(settings)
    about: dict[str, Any] = {
        "model": _describe_model(model, settings),
        "device": {"name": device.name, "bytes": device.num_bytes},
        "settings": _describe_settings(settings, context),
        "notes": _notes(model, settings),
    }
    try:
        plan = model.plan(settings, device)
    except ConfigError as error:
        helps = help_for(model, settings, device, 2)
        return about | {"fits": False, "reason": str(error), "would_help": helps}
    found = about | {"fits": True} | _describe_plan(plan, settings, context, lengths or LENGTHS)
    if context is not None and plan.num_tokens < context:
        found["reason"] = (
            f"a sequence of the whole context of {context:,} tokens does not fit; longer ones than "
            f"{plan.num_tokens:,} are refused"
        )
        found["would_help"] = help_for(model, settings, device, context)
    return found


def _describe_model(model: Model, settings: Settings) -> dict[str, Any]:
    numbers = model.numbers
    return {
        "folder": str(numbers.folder),
        "architecture": numbers.architecture,
        "weight_bytes": model.weights[settings.dtype],
        "weights_known_from": model.source,
        "kv_bytes_per_token": numbers.kv_elements * KV_BYTES[settings.kv_dtype],
        "state_bytes_per_sequence": numbers.states.state_bytes(settings.dtype) if numbers.states else 0,
        "layers": numbers.layers,
        "heads": numbers.heads,
        "kv_heads": numbers.kv_heads,
        "head_dim": numbers.head_dim,
        "v_head_dim": numbers.v_head_dim,
    }


def _describe_settings(settings: Settings, context: int | None) -> dict[str, Any]:
    return {
        "dtype": settings.dtype,
        "quantization": settings.quantization,
        "kv_cache_dtype": settings.kv_dtype,
        "mem_fraction_static": settings.fraction,
        "max_running_requests": settings.max_running,
        "chunked_prefill_size": settings.chunk,
        "cuda_graph_max_bs": settings.graphs,
        "context_length": context,
        "replicas": settings.replicas,
        "tp": settings.tp,
        "max_adapters": settings.adapters,
        "max_adapter_rank": settings.adapter_rank,
        "image_cache_mb": settings.image_cache_mb,
        "max_state_snapshots": settings.max_state_snapshots,
        "state_snapshot_dtype": settings.state_snapshot_dtype,
    }


def _describe_plan(
    plan: MemoryPlan, settings: Settings, context: int | None, lengths: tuple[int, ...]
) -> dict[str, Any]:
    """Return the memory use, and how many requests of each length fit. Omits lengths that are too long."""
    shown = [n for n in lengths if n <= plan.num_tokens and (context is None or n <= context)]
    return {
        "items": [{"what": what, "bytes": size} for what, size in plan.items],
        "free_bytes": plan.num_free_bytes,
        "tokens": plan.num_tokens,
        "snapshots": plan.num_snapshots,
        "requests": [
            {"tokens": n, "at_once": min(plan.num_requests(n), settings.max_running)} for n in shown
        ],
    }


def _notes(model: Model, settings: Settings) -> list[str]:
    numbers = model.numbers
    notes = list(numbers.notes)
    for window, count in numbers.windows.items():
        notes.append(
            f"{count} of {numbers.layers} layers attend to the last {window:,} tokens only; llmfw stores the keys and "
            "values of all tokens for them, too."
        )
    if numbers.states is not None and not numbers.states.takes_pieces:
        notes.append(
            "Its layers compute what follows a cached prefix token by token, so no snapshots of states are kept unless "
            "--max-state-snapshots asks for them."
        )
    if settings.tp > 1 and numbers.states is None:
        notes.append(
            f"The table is for one of {settings.tp} ranks, and counts an equal share of the weights for it; norms, and weights "
            "that each rank has whole, come in addition. Ranks run on CPUs only."
        )
    if KV_BYTES[settings.kv_dtype] == 1:
        notes.append(
            f"Keys and values in {settings.kv_dtype} change replies a little, more of long contexts where the checkpoint has "
            "no scales for them."
        )
    return notes
