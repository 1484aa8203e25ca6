"""Plans the use of a device's memory, in bytes, before it is allocated.

    |<------------------------------- the device ------------------------------->|
    | weights | keys and values | graphs | activations | tables | context | free |
    |<- mem fraction static --->|<-------------- outside it ------------->|

As in SGLang, the memory fraction covers weights and KV storage. The memory that steps need must fit into the
rest; if it does not, the KV storage is reduced. A plan needs neither tensors nor a device, so `llmfw plan`
can compute it anywhere. The formulas estimate the peak memory of transformers' modules in eager mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmfw.core.base.errors import ConfigError

from .sequence_sizes import Items, SequenceSizes

LOGITS_BYTES = 26
"""Bytes per element of the logits during sampling: for the logits in float32, their copy for one kind of
rows, probabilities, cumulative probabilities, bins, cumulative probabilities within one bin, and indices."""

BINS_BYTES = 3 * 4 << 15
"""Bytes per sequence during sampling, for the sum of probabilities in each bin."""

BYTES_PER_GRAPH = 8 << 20
"""Device memory for the nodes of a captured graph, in bytes. An estimate, not yet measured on a GPU."""

CONTEXT_BYTES = 700 << 20
"""Device memory for the CUDA context and the libraries' own buffers, in bytes. An estimate, not yet measured
on a GPU."""

GRAPH_SIZES = (1, 2, 4, *range(8, 33, 8), *range(40, 129, 8), *range(144, 257, 16), *range(288, 513, 32))
"""Numbers of sequences for which steps are captured. A step is padded to the next size: by fewer than 8
sequences up to 128, and by less than an eighth above."""

SNAPSHOTS_PER_SEQUENCE = 2
"""Default number of snapshots of states per running sequence: one of its prompt, and one of its output or a
branch.
"""

SNAPSHOT_SHARE = 0.25
"""Maximum share of snapshots, by default, in the memory for keys, values and snapshots."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model that determine its memory.

    Attributes:
        num_weight_bytes: size of all weights in bytes.
        num_kv_elements: number of elements in one token's keys and values, in all layers.
        hidden_size: width of the residual stream.
        query_width: `num_heads * head_dim` of the widest layer.
        qkv_width: width of one token's queries, keys and values together, in the widest layer.
        intermediate_size: width within the MLP; in a mixture of experts, the total width of the experts that
            one token is routed to.
        vocab_size: width of the logits.
        dtype_bytes: bytes per element of activations and logits.
        num_state_bytes: size of one sequence's states in bytes, for layers that keep states between steps.
        num_packed_bytes: size of a snapshot of these states in 8 bits.
        num_adapter_bytes: size of the slots for adapters in bytes.
        num_image_bytes: size of the encoded images that are kept, in bytes.
    """

    num_weight_bytes: int
    num_kv_elements: int
    hidden_size: int
    query_width: int
    qkv_width: int
    intermediate_size: int
    vocab_size: int
    dtype_bytes: int
    num_state_bytes: int = 0
    num_packed_bytes: int = 0
    num_adapter_bytes: int = 0
    num_image_bytes: int = 0

    @property
    def num_loaded_bytes(self) -> int:
        """Size of the weights, of the slots for adapters, and of the encoded images that are kept, in bytes."""
        return self.num_weight_bytes + self.num_adapter_bytes + self.num_image_bytes

    @classmethod
    def uniform(
        cls,
        *,
        num_weight_bytes: int,
        num_layers: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        hidden_size: int,
        intermediate_size: int,
        vocab_size: int,
        dtype_bytes: int,
        v_head_dim: int | None = None,
    ) -> ModelShape:
        """Return the shape of a model whose layers have equal sizes; the arguments are named as in
        config.json."""
        kv_width = num_kv_heads * (head_dim + (v_head_dim or head_dim))
        return cls(
            num_weight_bytes=num_weight_bytes,
            num_kv_elements=num_layers * kv_width,
            hidden_size=hidden_size,
            query_width=num_heads * head_dim,
            qkv_width=num_heads * head_dim + kv_width,
            intermediate_size=intermediate_size,
            vocab_size=vocab_size,
            dtype_bytes=dtype_bytes,
        )


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of a device, in bytes.

    Attributes:
        total: total memory.
        fraction: fraction of `total` for weights and KV storage.
        measured_free: free memory, measured with the weights on the device; None: not measured.
    """

    total: int
    fraction: float
    measured_free: int | None = None

    def free(self, shape: ModelShape) -> int:
        """Return the memory that is free with the weights on the device.

        If the free memory was not measured, returns the total memory minus the weights and the context.
        """
        if self.measured_free is None:
            return self.total - shape.num_loaded_bytes - CONTEXT_BYTES
        return self.measured_free


@dataclass(frozen=True, slots=True)
class StepSizes:
    """Sizes of the largest steps, which determine the memory that steps need.

    Attributes:
        chunk: maximum number of prompt tokens in a step.
        max_running: maximum number of sequences in a step.
        max_graph_size: maximum number of sequences in a captured step; 0: no step is captured.
    """

    chunk: int
    max_running: int
    max_graph_size: int = 0


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Settings of the storage of keys, values and snapshots of states.

    Attributes:
        dtype_bytes: bytes per element of keys and values.
        page_size: tokens in a page.
        max_tokens: maximum number of tokens in the KV storage; None: as many as fit.
        max_snapshots: maximum number of snapshots of states; None: chosen by `default_snapshots`.
        packs_snapshots: whether snapshots are kept in 8 bits.
    """

    dtype_bytes: int
    page_size: int = 1
    max_tokens: int | None = None
    max_snapshots: int | None = None
    packs_snapshots: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Use of a device's memory.

    Attributes:
        num_tokens: number of tokens whose keys and values fit, in whole pages.
        bytes_per_token: size of one token's keys and values in bytes.
        items: name and size in bytes of each use, including the KV storage.
        device_bytes: total memory of the device in bytes.
        num_snapshots: number of snapshots of states that the prefix cache may keep.
    """

    num_tokens: int
    bytes_per_token: int
    items: Items
    device_bytes: int
    num_snapshots: int = 0

    @property
    def num_free_bytes(self) -> int:
        """Unused memory of the device in bytes."""
        return self.device_bytes - sum(size for _, size in self.items)

    def num_requests(self, num_tokens: int) -> int:
        """Return how many requests of `num_tokens` tokens, prompt and output, fit at once."""
        return self.num_tokens // num_tokens


def plan_memory(
    shape: ModelShape,
    memory: DeviceMemory,
    steps: StepSizes,
    storage: StorageSettings,
    sequences: SequenceSizes | None = None,
) -> MemoryPlan:
    """Return a plan of the device's memory.

    Args:
        sequences: sizes of the sequences; None: neither the page table nor the attention backend is counted.

    Raises:
        ConfigError: not even one page fits, or the snapshots do not; the message has the sizes, and the flags that
            help.
    """
    reserve = reserved_items(shape, steps)
    if sequences is None:
        return _plan(shape, memory, steps, storage, reserve)

    def fits(num_pages: int) -> bool:
        """Return whether a sequence of this number of pages fits into the storage, with a page table of that width."""
        try:
            plan = _plan(shape, memory, steps, storage, reserve + sequences.items(num_pages))
        except ConfigError:
            return False
        return plan.num_tokens >= num_pages * storage.page_size

    most = sequences.context or (memory.total // max(1, shape.num_kv_elements * storage.dtype_bytes))
    if storage.max_tokens is not None:
        most = min(most, storage.max_tokens)
    longest = _largest(-(-most // storage.page_size), fits)
    return _plan(shape, memory, steps, storage, reserve + sequences.items(longest))


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that fits, if all smaller numbers fit, too; 1 if none fits."""
    low, high = 1, max(1, most) + 1
    if fits(high - 1):
        return high - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _plan(
    shape: ModelShape, memory: DeviceMemory, steps: StepSizes, storage: StorageSettings, reserve: Items
) -> MemoryPlan:
    """Return a plan that reserves the memory in `reserve` for steps; raise ConfigError if nothing fits."""
    room = min(_within_fraction(shape, memory), memory.free(shape) - _total(reserve))
    each = shape.num_packed_bytes if storage.packs_snapshots else shape.num_state_bytes
    num_snapshots = _num_snapshots(storage.max_snapshots, room, each, steps.max_running)
    snapshots = num_snapshots * each
    per_token = shape.num_kv_elements * storage.dtype_bytes
    num_tokens = _num_tokens(room - snapshots, per_token, storage, has_padding=steps.max_graph_size > 0)
    if num_tokens < storage.page_size:
        raise ConfigError(_does_not_fit(shape, memory, reserve))
    if storage.max_tokens is not None:
        num_tokens = min(num_tokens, storage.max_tokens // storage.page_size * storage.page_size)
    items = (
        ("weights", shape.num_weight_bytes),
        *([("slots for adapters", shape.num_adapter_bytes)] if shape.num_adapter_bytes else ()),
        *([("encoded images", shape.num_image_bytes)] if shape.num_image_bytes else ()),
        ("context, and what others have", max(0, memory.total - shape.num_loaded_bytes - memory.free(shape))),
        ("keys and values", num_tokens * per_token),
        *([(f"{num_snapshots} snapshots of states", snapshots)] if snapshots else ()),
        *reserve,
    )
    return MemoryPlan(num_tokens, per_token, items, memory.total, num_snapshots)


def _within_fraction(shape: ModelShape, memory: DeviceMemory) -> int:
    """Return the memory in bytes that the fraction leaves after weights, adapter slots and encoded images."""
    return int(memory.fraction * memory.total) - shape.num_loaded_bytes


def _total(items: Items) -> int:
    return sum(size for _, size in items)


def _num_tokens(room: int, per_token: int, storage: StorageSettings, *, has_padding: bool) -> int:
    """Return how many tokens fit in a pool whose storage has `room` bytes, in whole pages; below 1 if none fits.

    Args:
        per_token: size of one token's keys and values in bytes; 0: no layer has attention, so `max_tokens`
            fit.
        has_padding: whether the storage has one more page than the pool, for the padding of captured steps.
    """
    if per_token:
        num_pages = room // (per_token * storage.page_size)
    else:
        num_pages = (storage.max_tokens or 0) // storage.page_size if room >= 0 else 0
    return (num_pages - 1 if has_padding else num_pages) * storage.page_size


def _num_snapshots(most: int | None, room: int, num_bytes: int, max_running: int) -> int:
    """Return the number of snapshots of states to keep.

    Args:
        most: number that the settings ask for; None: the default.
        num_bytes: size of one snapshot in bytes.

    Raises:
        ConfigError: the requested number of snapshots does not fit.
    """
    if most is None:
        most = default_snapshots(room, num_bytes, max_running)
    snapshots = most * num_bytes
    if snapshots > max(0, room):
        raise ConfigError(
            f"--max-state-snapshots is {most}, which take {gibibytes(snapshots)}; {gibibytes(max(0, room))} are left "
            "for them and for keys and values; lower it"
        )
    return most


def default_snapshots(room: float, num_bytes: int, max_running: int) -> int:
    """Return the default number of snapshots of states.

    Args:
        room: memory for keys, values and snapshots in bytes.
        num_bytes: size of one snapshot in bytes; 0: the model keeps no states.
        max_running: maximum number of running sequences.
    """
    if not num_bytes:
        return 0
    return max(0, min(SNAPSHOTS_PER_SEQUENCE * max_running, int(SNAPSHOT_SHARE * room) // num_bytes))


def reserved_items(shape: ModelShape, steps: StepSizes) -> Items:
    """Return the name and size in bytes of each use of memory by steps, in addition to weights, keys and
    values."""
    num_tokens, max_running = steps.chunk + steps.max_running, steps.max_running
    items = [
        (f"activations of {num_tokens} tokens", activation_bytes(shape, num_tokens)),
        (
            f"logits of {max_running} tokens",
            max_running * (shape.vocab_size * (shape.dtype_bytes + LOGITS_BYTES) + BINS_BYTES),
        ),
    ]
    if shape.num_state_bytes:
        items.append((f"states of {max_running} sequences", max_running * shape.num_state_bytes))
    if max_graph_size := steps.max_graph_size:
        num_graphs = len(graph_sizes(max_graph_size))
        num_bytes = num_graphs * BYTES_PER_GRAPH + activation_bytes(shape, max_graph_size)
        num_bytes += max_graph_size * shape.vocab_size * (4 + shape.dtype_bytes)
        items.append((f"{num_graphs} CUDA graphs of up to {max_graph_size} sequences", num_bytes))
    return tuple(items)


def activation_bytes(shape: ModelShape, num_tokens: int) -> int:
    """Return the peak memory of a step of `num_tokens` tokens in bytes, not counting logits.

    A step holds the residual stream, its normalized form, and two float32 copies of the latter. In addition
    it holds either the tensors of the attention (merged projection, queries and keys during the rotation,
    output) or those of the MLP (merged projection, activation, and their product).
    """
    attention = 2 * shape.qkv_width + 3 * shape.query_width
    mlp = 4 * shape.intermediate_size
    per_token = shape.dtype_bytes * (3 * shape.hidden_size + max(attention, mlp)) + 8 * shape.hidden_size
    return num_tokens * per_token


def graph_sizes(most: int) -> Sequence[int]:
    """Return the numbers of sequences for which to capture steps, ascending; the last is `most`.

    Above 512, they increase by 64.
    """
    sizes = [*GRAPH_SIZES, *range(576, most, 64)]
    return [*(size for size in sizes if size < most), most] if most > 0 else []


def gibibytes(count: float) -> str:
    """Format a number of bytes for messages, such as "1.50 GB". One GB is 2**30 bytes here."""
    return f"{count / (1 << 30):.2f} GB"


def _does_not_fit(shape: ModelShape, memory: DeviceMemory, reserve: Items) -> str:
    listed = ", ".join(f"{what} {gibibytes(size)}" for what, size in reserve)
    if _within_fraction(shape, memory) < memory.free(shape) - _total(reserve):
        return (
            f"weights of {gibibytes(shape.num_weight_bytes)} leave no room for keys and values within "
            f"{memory.fraction:.0%} of {gibibytes(memory.total)}; raise --mem-fraction-static"
        )
    return (
        f"no room is left for keys and values: of {gibibytes(memory.total)}, {gibibytes(memory.free(shape))} are free "
        f"after the weights, and steps need {listed}; lower --chunked-prefill-size, --max-running-requests or "
        "--cuda-graph-max-bs"
    )
