"""The backend `triton`: plans each step for the kernels of this package, and launches them layer by layer.

The decode kernels compute sequences with one new token; the prefill kernel computes the others. The inputs of
both are copied to the device in one copy; nothing is copied back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt
import torch
import triton

from llmfw.core import AttentionBackend, ForwardBatch, KVStorage, LayerSpec
from llmfw.core.interfaces.kv_dtype import as_bytes
from llmfw.core.kernels.kv_kernel import write, write_kernel

from .decode import Partials, decode, num_tiles
from .prefill import Spans, Tiles, cut_queries, prefill
from .schedule import Schedule, schedule
from .tile import BYTES_MEAN

MAX_HEAD_DIM = 256
OLDEST = (8, 0)
CONVERTS_E4M3 = (8, 9)
"""The first compute capability that converts fp8_e4m3 in hardware."""
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
INTERPRETED_SMS = 8
"""Assumed number of multiprocessors in Triton's interpreter: enough to split keys, as on a device."""


@dataclass(frozen=True, slots=True)
class Decodes:
    """Inputs of the decode kernels in a step of B sequences.

    Attributes:
        kv_lens: number of tokens of each sequence: [B], int32.
        schedules: sliding window → schedule; the key None is for layers without a window.
        partials: buffers for the partial results of any schedule; may be shared with other `Decodes`.
    """

    kv_lens: torch.Tensor
    schedules: dict[int | None, Schedule]
    partials: Partials


@dataclass(frozen=True, slots=True)
class Prefills:
    """Inputs of the prefill kernel.

    Attributes:
        spans: tokens of each sequence.
        blocks: blocks of queries, by (query heads per KV head, rows per block); see `cut_queries`.
    """

    spans: Spans
    blocks: dict[tuple[int, int], torch.Tensor]


class TritonAttention(AttentionBackend):
    """Attention by Triton kernels that read the pages in place."""

    class Options(AttentionBackend.Options, frozen=True, forbid_unknown_fields=True):
        """Options, `-o attention.key=value`.

        Attributes:
            programs_per_sm: number of programs per multiprocessor over which all decoding sequences' keys are
                split.
        """

        programs_per_sm: Annotated[int, msgspec.Meta(ge=1)] = 4

    _decodes: Decodes | None
    _prefills: Prefills | None

    def __init__(self, layers: Sequence[LayerSpec], storage: KVStorage, options: Options) -> None:
        super().__init__(layers, storage, options)
        self._device = storage.keys[0].device
        self._num_spare = _spare_pieces(layers, _num_sms(self._device) * options.programs_per_sm)
        capability = OLDEST
        if self._device.type == "cuda":
            capability = torch.cuda.get_device_capability(self._device)
        self._tiles = {layer.index: Tiles.of(layer, storage.dtype, capability[0]) for layer in layers}
        self._reads_bytes = reads_bytes(storage.stored_as, capability)
        self._scales = {layer.index: self._scales_of(layer.index) for layer in layers}
        self._cuts = {self._cut_of(layer) for layer in layers}
        self._partials = self._make_partials(0)
        self._num_pieces = 0
        self._static: dict[int, Decodes] = {}

    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return the first reason why the kernels cannot serve these layers on this device, or None."""
        if dtype not in DTYPES:
            return f"it computes in bfloat16, float16 and float32, not in {str(dtype).removeprefix('torch.')}"
        largest = max((max(layer.head_dim, layer.v_head_dim) for layer in layers), default=0)
        if largest > MAX_HEAD_DIM:
            return f"heads have at most {MAX_HEAD_DIM} dimensions; here they have {largest}"
        if torch.device(device).type == "cuda":
            capability = torch.cuda.get_device_capability(device)
            if capability < OLDEST:
                return "it needs compute capability {}.{}; the device has {}.{}".format(*OLDEST, *capability)
            return None
        if torch.device(device).type != "cpu":
            return f"it runs on CUDA devices, not on {device}"
        if isinstance(write_kernel, triton.JITFunction):
            return "it runs on CUDA devices (on a CPU only for tests, by TRITON_INTERPRET=1)"
        if dtype == torch.bfloat16:
            return "Triton's interpreter is wrong in bfloat16"
        return None

    @classmethod
    def storage_unsupported(cls, device: str, dtype: torch.dtype, stored_as: torch.dtype) -> str | None:
        """Return None: the kernels convert the keys and values that they read."""
        return None

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
        """Return the size of the partial results, and of the schedules of captured steps, in bytes."""
        assert isinstance(options, TritonAttention.Options)
        num_spare = _spare_pieces(layers, _num_sms(torch.device(device)) * options.programs_per_sm)
        most_spare = max(num_spare.values(), default=0)
        captured = graph_sizes[-1] if graph_sizes else 0
        # Graphs keep the partial results of the largest one; larger steps without graphs have their own.
        sizes = ([captured] if captured else []) + ([num_sequences] if num_sequences > captured else [])
        pieces = sum(size + most_spare for size in sizes)
        schedules = sum(
            16 * (size + spare) + 4 * (size + 1) for size in graph_sizes for spare in num_spare.values()
        )
        return 4 * pieces * sum(_partial_dims(layers)) + schedules

    def graph_unsupported(self) -> None:
        """Return None: graphs are supported, because launches depend only on the number of sequences."""

    def plan(self, batch: ForwardBatch) -> None:
        """Copy the step's lengths to the device and schedule the decode kernels there."""
        if batch.is_static:
            self._prefills = None
            self._decodes = self._plan_static(batch.kv_lens)
            return
        num_sequences, num_single = len(batch.kv_lens), batch.num_single
        starts = np.cumsum(batch.query_lens) - batch.query_lens
        cuts = {
            cut: cut_queries(batch.query_lens, batch.kv_lens, num_single, *cut)
            for cut in (self._cuts if num_single < num_sequences else ())
        }
        kv_lens, starts_there, counts, *blocks = _to_device(
            [batch.kv_lens, starts, batch.query_lens, *cuts.values()], self._device
        )
        self._prefills = self._decodes = None
        if num_single < num_sequences:
            self._prefills = Prefills(
                Spans(starts_there, counts, kv_lens),
                {cut: found.view(-1, 2) for cut, found in zip(cuts, blocks, strict=True)},
            )
        if num_single:
            self._decodes = self._make_decodes(kv_lens[:num_single])
            self._schedule(self._decodes)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: LayerSpec,
        batch: ForwardBatch,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write the new keys and values, then attend: decoding sequences first, then the others."""
        query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
        keys, values = self.storage.keys[layer.index], self.storage.values[layer.index]
        write(key, value, keys, values, batch.slots, self.storage.scales(layer.index))
        if self._reads_bytes:
            keys, values = as_bytes(keys), as_bytes(values)
        scales = self._scales[layer.index]
        output = query.new_empty((len(query), layer.num_heads, layer.v_head_dim))
        if self._decodes is not None:
            num_single = len(self._decodes.kv_lens)
            decode(
                query[:num_single],
                keys,
                values,
                batch.page_table,
                batch.rows,
                self._decodes.schedules[layer.sliding_window],
                self._decodes.partials,
                layer,
                sinks,
                output[:num_single],
                scales,
            )
        if self._prefills is not None:
            prefill(
                query,
                keys,
                values,
                batch.page_table,
                batch.rows,
                self._prefills.spans,
                self._prefills.blocks[self._cut_of(layer)],
                layer,
                self._tiles[layer.index],
                sinks,
                output,
                scales,
            )
        return output

    def _plan_static(self, kv_lens: npt.NDArray[np.int64]) -> Decodes:
        """Return the inputs of a static step.

        Steps of the same size get the same buffers, as CUDA graphs require.
        """
        [there] = _to_device([kv_lens], self._device)
        decodes = self._static.get(len(kv_lens))
        if decodes is None:
            decodes = self._static[len(kv_lens)] = self._make_decodes(there)
        else:
            decodes.kv_lens.copy_(there)
        self._schedule(decodes)
        return decodes

    def _make_decodes(self, kv_lens: torch.Tensor) -> Decodes:
        num_sequences = len(kv_lens)
        schedules = {
            window: Schedule.empty(num_sequences, num_spare, self._device)
            for window, num_spare in self._num_spare.items()
        }
        num_pieces = num_sequences + max(self._num_spare.values())
        if num_pieces > self._num_pieces:
            # Earlier `Decodes` keep the smaller partials, because a captured graph refers to their addresses.
            self._num_pieces, self._partials = num_pieces, self._make_partials(num_pieces)
        return Decodes(kv_lens, schedules, self._partials)

    def _make_partials(self, num_pieces: int) -> Partials:
        return Partials.empty(num_pieces, *_partial_dims(self.layers), self._device)

    def _schedule(self, decodes: Decodes) -> None:
        for window, made in decodes.schedules.items():
            schedule(decodes.kv_lens, window, made)

    def _scales_of(self, index: int) -> tuple[float, float]:
        """Return the factors by which kernels multiply a layer's keys and values after reading them."""
        by_kernel = BYTES_MEAN if self._reads_bytes else 1.0
        key_scale, value_scale = self.storage.scales(index)
        return key_scale * by_kernel, value_scale * by_kernel

    def _cut_of(self, layer: LayerSpec) -> tuple[int, int]:
        """Return how a layer's queries are split into blocks: (query heads per KV head, rows per block)."""
        return layer.num_heads // layer.num_kv_heads, self._tiles[layer.index].queries


def _partial_dims(layers: Sequence[LayerSpec]) -> tuple[int, int]:
    """Return the largest number of query heads of a layer, and of outputs (H * Dv) of a layer."""
    num_heads = max((layer.num_heads for layer in layers), default=1)
    return num_heads, max((layer.num_heads * layer.v_head_dim for layer in layers), default=1)


def _spare_pieces(layers: Sequence[LayerSpec], num_programs: int) -> dict[int | None, int]:
    """Return the number of pieces that a step may have beyond one per sequence, by sliding window."""
    num_spare: dict[int | None, int] = {}
    for layer in layers:
        wanted = -(-num_programs // num_tiles(layer))
        num_spare[layer.sliding_window] = max(wanted, num_spare.get(layer.sliding_window, 0))
    return num_spare


def reads_bytes(stored_as: torch.dtype, capability: tuple[int, int]) -> bool:
    """Return whether kernels read `stored_as` as bytes, because the device cannot convert it."""
    return stored_as == torch.float8_e4m3fn and capability < CONVERTS_E4M3


def _num_sms(device: torch.device) -> int:
    """Return the number of multiprocessors of a device."""
    if device.type != "cuda":
        return INTERPRETED_SMS
    return torch.cuda.get_device_properties(device).multi_processor_count


def _to_device(arrays: Sequence[npt.NDArray[np.integer]], device: torch.device) -> list[torch.Tensor]:
    """Copy arrays to the device in one copy; return them as flat int32 tensors.

    Each tensor is 16-byte aligned, because Triton would compile another kernel for unaligned pointers.
    """
    sizes = [array.size for array in arrays]
    rooms = [-(-size // 4) * 4 for size in sizes]
    packed = torch.empty(sum(rooms), dtype=torch.int32, device="cpu", pin_memory=device.type == "cuda")
    for array, room in zip(arrays, packed.split(rooms), strict=True):
        room.numpy()[: array.size] = array.reshape(-1)
    there = packed.to(device, non_blocking=True)
    return [room[:size] for room, size in zip(there.split(rooms), sizes, strict=True)]
