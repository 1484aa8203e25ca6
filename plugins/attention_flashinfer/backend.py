"""Attention by FlashInfer's kernels for paged KV caches.

One FlashInfer wrapper computes all decoding sequences of a step; another computes all its prompts (prefill).
The host plans each step once per kind of layer (`Kind`), while the device still computes the previous step.
Planning must wait until the previous plan has been copied to the device (`_copied`). Usually, that copy has
ended long before. Each layer first writes the new keys and values. Then the wrappers read all keys and values
of a sequence from its pages, so a prefix that several prompts share is read in place.

`planner` calls FlashInfer; `scratch` computes how much scratch memory FlashInfer needs; `prefill_kernels`
chooses the kernels for prompts, `writer` chooses the code that writes keys and values.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
import torch

from llmfw.core import AttentionBackend, ComponentError, ForwardBatch, KVStorage, LayerSpec
from llmfw.core.interfaces.kv_dtype import dtype_name, is_fp8

from .kind import Kind
from .pages import Pages, find_pages, one_page
from .planner import PLAN_BYTES, GraphBuffers, Planner
from .prefill_kernels import prefill_kernels
from .scratch import Scratch, bytes_for_graph, bytes_for_steps, bytes_of_buffers
from .writer import choose_writer

logger = logging.getLogger(__name__)

Part = Literal["decode", "prefill"]

HEAD_DIMS = (64, 128, 256)
DTYPES = (torch.float16, torch.bfloat16)
CORES_GROUPS = (1, 2, 3, 4, 8)
"""Numbers of query heads per KV head that the kernel without tensor cores supports."""
TENSOR_CORES_FROM = 4
"""Least number of query heads per KV head for tensor cores. With fewer, tiles would be mostly empty."""


class FlashInferAttention(AttentionBackend):
    """Attention by FlashInfer's wrappers over paged keys and values."""

    class Options(AttentionBackend.Options, frozen=True, forbid_unknown_fields=True):
        """Options, `-o attention.key=value`.

        Attributes:
            workspace_mb: minimum scratch memory on the device, in MiB; more is allocated if the model needs
                it.
            decode_tensor_cores: whether to decode on tensor cores; "auto": if at least four query heads share
                a KV head.
            prefill_backend: kernels for prefill: "fa2", or "fa3" (compute capability 9.0 only); "auto": fa3 if it
                is faster and its kernels can be loaded.
        """

        workspace_mb: Annotated[int, msgspec.Meta(ge=0)] = 0
        decode_tensor_cores: Literal["auto", "on", "off"] = "auto"
        prefill_backend: Literal["auto", "fa2", "fa3"] = "auto"

    options: Options

    def __init__(
        self,
        layers: Sequence[LayerSpec],
        storage: KVStorage,
        options: Options,
        parts: Collection[Part] = get_args(Part),
    ) -> None:
        super().__init__(layers, storage, options)
        self._parts = parts
        self._device = storage.keys[0].device
        self._scales = {layer.index: _scales(storage, layer.index) for layer in layers}
        self._kinds = {layer.index: Kind.of(layer) for layer in layers}
        self._check_options()
        self._num_processors = torch.cuda.get_device_properties(self._device).multi_processor_count
        self._planners = self._make_planners()
        self._graph_buffers: dict[int, GraphBuffers] = {}
        self._decode: dict[Kind, Any] = {}
        self._prefill: dict[Kind, Any] = {}
        # FlashInfer writes every plan into the same pinned memory and starts an asynchronous copy from there.
        self._copied = torch.cuda.Event()
        self._load_kernels()
        self._write = choose_writer(layers, storage)

    @classmethod
    def for_part(
        cls, part: Part, layers: Sequence[LayerSpec], storage: KVStorage, options: Any
    ) -> FlashInferAttention:
        """Build a backend that loads only the kernels for one part of each step."""
        return cls(layers, storage, options, (part,))

    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return why these layers cannot be served, as a sentence, or None if they can.

        Cheap checks run first.
        """
        return (
            _unsupported_device(torch.device(device))
            or _unsupported_dtype(dtype)
            or unsupported_layers(layers)
            or _missing_kernels()
        )

    @classmethod
    def storage_unsupported(cls, device: str, dtype: torch.dtype, stored_as: torch.dtype) -> str | None:
        """Return why `stored_as` cannot be stored, or None.

        Only fp8 is supported: the kernels convert fp8 while they read.
        """
        if is_fp8(stored_as):
            return None
        return (
            f"keys and values in {dtype_name(stored_as)} with queries in {dtype_name(dtype)} have no kernel; "
            "fp8_e4m3 and fp8_e5m2 have"
        )

    @classmethod
    def step_bytes(
        cls,
        layers: Sequence[LayerSpec],
        options: AttentionBackend.Options,
        device: str,
        *,
        num_sequences: int,
        num_pages: int,
        graph_sizes: Sequence[int],
    ) -> int:
        """Return the size of the scratch memory, of the plans, and of the page ids of CUDA graphs, in bytes."""
        assert isinstance(options, FlashInferAttention.Options)
        kinds = dict.fromkeys(map(Kind.of, layers))
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        first = max((bytes_for_steps(kind, processors) for kind in kinds), default=0)
        largest_first = reversed(graph_sizes)
        wanted = (bytes_for_graph(kind, processors, size) for size in largest_first for kind in kinds)
        total = bytes_of_buffers(max(first, options.workspace_mb << 20), wanted)
        if graph_sizes:
            total += 4 * room_for_ids(graph_sizes[-1], num_pages)
        return total + len(kinds) * PLAN_BYTES

    def graph_unsupported(self) -> str | None:
        """Return None: graphs are supported.

        Each batch size has a wrapper of its own, whose buffers never move.
        """
        return None

    def plan(self, batch: ForwardBatch) -> None:
        """Plan the step on the host for each kind of layer, and start to copy the plans to the device."""
        self._copied.synchronize()
        self._decode, self._prefill = {}, {}
        if batch.is_static:
            self._plan_graph(batch)
        else:
            self._plan_step(batch)
        self._copied.record()

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: LayerSpec,
        batch: ForwardBatch,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write the new keys and values, then attend with the planned wrappers."""
        stored = self.storage.keys[layer.index], self.storage.values[layer.index]
        self._write(self.storage, layer.index, batch.slots, key, value)
        kind, scales = self._kinds[layer.index], self._scales[layer.index]
        single = batch.num_single
        output = query.new_empty(query.shape)
        if single:
            self._decode[kind].run(query[:single], stored, out=output[:single], **scales)
        if single < len(query):
            self._prefill[kind].run(query[single:], stored, out=output[single:], **scales)
        return output

    def _load_kernels(self) -> None:
        """Plan once, so that missing kernels are compiled now rather than during the first request."""
        logger.info(
            "Loading FlashInfer's kernels. Kernels that are not compiled yet are compiled now, which takes minutes."
        )
        pages = one_page(self._device)
        try:
            if "decode" in self._parts:
                for planner in self._planners.values():
                    planner.plan_decode(pages)
            if "prefill" in self._parts:
                self._load_prefill(pages)
        except Exception as error:  # from FlashInfer's package, the compiler or the loader
            raise ComponentError(f"FlashInfer's kernels cannot be loaded: {_in_one_line(error)}") from error
        self._copied.record()

    def _load_prefill(self, pages: Pages) -> None:
        """Load the best available kernels for prompts. All kinds of layers use the same kernels."""
        option = self.options.prefill_backend
        best, *others = prefill_kernels(option, self._planners, self.storage.stored_as, self._device)
        try:
            self._plan_prefill(best, pages)
        except Exception as error:
            if not others:
                raise
            logger.info(
                "FlashInfer's kernels %s for prompts cannot be loaded, so %s is used: %s",
                *(best, others[0], _in_one_line(error)),
            )
            self._plan_prefill(others[0], pages)

    def _plan_prefill(self, kernels: str, pages: Pages) -> None:
        for planner in self._planners.values():
            planner.use_prefill(kernels)
            planner.plan_prefill(pages)

    def _plan_step(self, batch: ForwardBatch) -> None:
        single, total = batch.num_single, len(batch.query_lens)
        if single:
            pages = find_pages(batch, slice(0, single))
            self._decode = {kind: planner.plan_decode(pages) for kind, planner in self._planners.items()}
        if single < total:
            pages = find_pages(batch, slice(single, total))
            self._prefill = {kind: planner.plan_prefill(pages) for kind, planner in self._planners.items()}

    def _plan_graph(self, batch: ForwardBatch) -> None:
        size = len(batch.query_lens)
        pages = find_pages(batch, slice(0, size))
        if size not in self._graph_buffers:
            self._graph_buffers[size] = self._make_graph_buffers(size, batch.page_table.shape[1])
        buffers = self._graph_buffers[size]
        buffers.fill(pages)
        self._decode = {
            kind: planner.plan_graph(pages, buffers, self._num_processors)
            for kind, planner in self._planners.items()
        }

    def _make_graph_buffers(self, size: int, most_pages: int) -> GraphBuffers:
        """Return buffers for graphs of `size` sequences.

        With long contexts, page ids take much memory. Graphs never run at the same time, so they share one
        buffer of page ids. A new one has room for `size` sequences, rounded up to a power of two, so that
        capturing sizes in any order allocates few buffers.
        """

        def zeros(count: int) -> torch.Tensor:
            return torch.zeros(count, dtype=torch.int32, device=self._device)

        for other in self._graph_buffers.values():
            if len(other.indices) >= size * most_pages:
                return GraphBuffers(zeros(size + 1), other.indices, zeros(size))
        return GraphBuffers(zeros(size + 1), zeros(room_for_ids(size, most_pages)), zeros(size))

    def _make_planners(self) -> dict[Kind, Planner]:
        kinds = dict.fromkeys(self._kinds.values())
        most = max(bytes_for_steps(kind, self._num_processors) for kind in kinds)
        scratch = Scratch(self._device, max(most, self.options.workspace_mb << 20))
        try:
            flashinfer = importlib.import_module("flashinfer")
        except Exception as error:  # e.g. RuntimeError: its kernels' version differs
            raise ComponentError(f"FlashInfer cannot be imported: {_in_one_line(error)}") from error
        return {
            kind: Planner(
                flashinfer,
                kind,
                self.storage.dtype,
                self.storage.stored_as,
                self.storage.page_size,
                scratch,
                tensor_cores=self._uses_tensor_cores(kind),
            )
            for kind in kinds
        }

    def _uses_tensor_cores(self, kind: Kind) -> bool:
        if self.options.decode_tensor_cores == "auto":
            return kind.num_shared >= TENSOR_CORES_FROM
        return self.options.decode_tensor_cores == "on"

    def _check_options(self) -> None:
        """Raise ComponentError for an option that this model or this device does not allow."""
        if "prefill" in self._parts:
            prefill_kernels(
                *(self.options.prefill_backend, self._kinds.values(), self.storage.stored_as, self._device)
            )
        if "decode" not in self._parts:
            return
        for kind in self._kinds.values():
            if self.options.decode_tensor_cores == "off" and kind.num_shared not in CORES_GROUPS:
                raise ComponentError(
                    f"attention.decode_tensor_cores=off: {kind.num_shared} query heads share a key head; "
                    f"without tensor cores it can be {_one_of(CORES_GROUPS)}"
                )


def _scales(storage: KVStorage, index: int) -> dict[str, float]:
    """Return a layer's key and value scales as keyword arguments of `run`; {} if both are 1."""
    key_scale, value_scale = storage.scales(index)
    return {} if key_scale == value_scale == 1.0 else {"k_scale": key_scale, "v_scale": value_scale}


def room_for_ids(size: int, most_pages: int) -> int:
    """Return the number of page ids in a new buffer for graphs of `size` sequences."""
    return most_pages << (size - 1).bit_length()


def unsupported_layers(layers: Sequence[LayerSpec]) -> str | None:
    """Return why FlashInfer has no kernel for one of these layers, or None."""
    for layer in layers:
        if layer.head_dim not in HEAD_DIMS:
            return f"heads of size {layer.head_dim} have no kernel; {_one_of(HEAD_DIMS)} have"
        if layer.v_head_dim != layer.head_dim:
            return f"values of size {layer.v_head_dim} with keys of size {layer.head_dim} have no kernel"
        if layer.has_sinks:
            return "attention sinks have no kernel"
    return None


def _unsupported_device(device: torch.device) -> str | None:
    if device.type != "cuda":
        return f"it runs on NVIDIA GPUs, not on {device.type}"
    if torch.version.hip:
        return "it runs on NVIDIA GPUs, not on AMD's"
    major, minor = torch.cuda.get_device_capability(device)
    if major < 8:
        return f"it needs compute capability 8.0 or more; this device has {major}.{minor}"
    return None


def _unsupported_dtype(dtype: torch.dtype) -> str | None:
    if dtype in DTYPES:
        return None
    return f"keys and values in {str(dtype).removeprefix('torch.')} have no kernel; float16 and bfloat16 have"


def _missing_kernels() -> str | None:
    """Return why FlashInfer can neither load precompiled kernels nor compile them, or None.

    Looks for them in the same places as FlashInfer.
    """
    if importlib.util.find_spec("flashinfer_jit_cache"):
        return None
    if os.environ.get("FLASHINFER_DISABLE_JIT"):
        return "there are no ready kernels (package flashinfer_jit_cache), and FLASHINFER_DISABLE_JIT is set"
    named = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    if shutil.which("nvcc") or (Path(named) / "bin" / "nvcc").exists():
        return None
    return (
        "there are neither ready kernels (package flashinfer_jit_cache) nor a compiler for them "
        "(nvcc of CUDA's toolkit, named by CUDA_HOME)"
    )


def _in_one_line(error: Exception) -> str:
    """Return an error's type and message.

    FlashInfer's error for a missing kernel has the kernel's name only in `spec`.
    """
    kernel = getattr(getattr(error, "spec", None), "name", None)
    named = f"{kernel}: " if isinstance(kernel, str) else ""
    return f"{type(error).__name__}: {named}{' '.join(str(error).split())}"


def _one_of(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} or {numbers[-1]}"
