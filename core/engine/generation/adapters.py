"""The adapters of a running engine: loads them in the background, and keeps track of the requests that use them.

If more adapters may be loaded than the model has slots, the weights of all are kept in host memory, and are copied
into a slot when a sequence needs them: in the background while steps run, since no running sequence uses the slot.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from llmfw.core.base.adapter_name import what_is_wrong
from llmfw.core.base.control import AdapterInfo, AdapterList
from llmfw.core.base.described import described
from llmfw.core.base.errors import ConflictError, LLMFWError, RequestError
from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.model.adapters.adapter_files import AdapterWeights
from llmfw.core.model.adapters.adapter_slots import AdapterSlots
from llmfw.core.schedule.slot_assignment import SlotAssignment, SlotWrite

from ..admission.adapter_table import AdapterTable, Resident

logger = logging.getLogger(__name__)

MAX_LOADING = 8
MAX_FAILED = 32
"""Maximum number of failed loads to remember."""


class EngineAdapters:
    """Loads and unloads an engine's adapters.

    A thread reads the files, and another one copies weights into slots.

    Args:
        slots: the model's slots for adapters; None: the model has no slots.
        max_loaded: maximum number of loaded adapters, at least the number of slots; None: the number of slots.

    Attributes:
        assignment: which adapters are in the slots.
        has_room: whether the model has slots. If not, steps need not call `tick`, `copy` and `note_events`.
    """

    def __init__(self, slots: AdapterSlots | None, max_loaded: int | None = None) -> None:
        self._slots = slots
        self.has_room = slots is not None
        num_slots = 0 if slots is None else slots.num_slots
        self._max_loaded = num_slots if max_loaded is None else max_loaded
        assert self._max_loaded >= num_slots, "fewer loaded adapters than slots"
        self.assignment = SlotAssignment(num_slots)
        setting = "--max-adapters" if self._max_loaded == num_slots else "--max-loaded-adapters"
        self._table = AdapterTable(self._max_loaded, setting, self._forget)
        self._weights: dict[int, AdapterWeights] = {}  # by number; empty if each adapter has a slot
        self._copies: deque[tuple[SlotWrite, Future[None]]] = deque()
        self._copier = ThreadPoolExecutor(1, "llmfw-adapter-slots")
        self._num_loads = 0
        self._loading: deque[tuple[AdapterInfo, Future[AdapterWeights]]] = deque()
        self._failed: deque[AdapterInfo] = deque(maxlen=MAX_FAILED)
        self._reader = ThreadPoolExecutor(1, "llmfw-adapters")

    def load_now(self, named: Sequence[tuple[str, str]]) -> None:
        """Load adapters before the engine starts to serve.

        Args:
            named: name and path of each.

        Raises:
            ModelError: an adapter cannot be read, or does not fit the model.
        """
        for name, path in named:
            assert self._slots is not None
            self._install(self._next(name, path), self._slots.read(path))

    def load(self, name: str, path: str) -> AdapterInfo:
        """Start to load an adapter; return its state, which is "loading".

        Raises:
            RequestError: the name cannot be used, there is no room for adapters, or too many are loading.
        """
        _check_name(name)
        if self._slots is None:
            raise ConflictError("this server has no room for adapters; start it with --max-adapters")
        if len(self._loading) >= MAX_LOADING:
            raise ConflictError(f"{MAX_LOADING} adapters are being loaded already; try again later")
        info = self._next(name, path)
        self._loading.append((info, self._reader.submit(self._slots.read, path)))
        return info

    def unload(self, name: str) -> AdapterInfo:
        """Stop new requests to an adapter; return its state. Its open requests run to their end.

        Raises:
            ModelNotFoundError: there is no such adapter.
        """
        resident = self._table.remove(name)
        logger.info("Adapter %s is unloaded; %d requests still use it", name, len(resident.requests))
        return resident.info()

    def list(self) -> AdapterList:
        """Return all adapters: loaded ones, those that are being loaded, and those whose loading failed."""
        infos = [resident.info() for resident in self._table]
        infos += [info for info, _ in self._loading]
        slots = self._slots
        return AdapterList(
            [*infos, *self._failed],
            max_adapters=0 if slots is None else slots.num_slots,
            max_loaded=self._max_loaded,
            max_rank=0 if slots is None else slots.max_rank,
        )

    def tick(self) -> None:
        """Take over the adapters whose files have been read, and the slots that have been written.

        Call this between two steps.
        """
        while self._copies and self._copies[0][1].done():
            self._finish_copy()
        while self._loading and self._loading[0][1].done():
            info, reading = self._loading.popleft()
            try:
                self._install(info, reading.result())
            except Exception as error:  # noqa: BLE001 - a user's files may be wrong in any way
                text = str(error) if isinstance(error, LLMFWError) else described(error)
                logger.warning("Adapter %s is not loaded: %s", info.name, text)
                self._failed.append(
                    AdapterInfo(info.name, info.path, info.version, state="failed", error=text)
                )

    def copy(self) -> None:
        """Start to copy the weights of adapters that were given slots. Call this after a step is planned.

        On a GPU, wait for the copies: another thread must not use it while the engine captures a CUDA graph.
        """
        for write in self.assignment.take_writes():
            assert self._slots is not None
            copying = self._copier.submit(self._slots.write, write.slot, self._weights[write.adapter])
            self._copies.append((write, copying))
            if not self._slots.is_on_cpu:
                self._finish_copy()

    def finish_copies(self) -> bool:
        """Wait until all slots are written; return whether any was not. For times at which no sequence runs."""
        had_copies = self.assignment.has_writes or bool(self._copies)
        self.copy()
        while self._copies:
            self._finish_copy()
        return had_copies

    def salted(self, request: Request) -> Request:
        """Return a request with the salt of its adapter (see `AdapterTable.salted`)."""
        if not (request.adapter or request.cache_salt):
            return request
        return self._table.salted(request)

    def salt_of(self, adapter: str, salt: str) -> str:
        """Return the salt of cached prefixes (see `AdapterTable.salt_of`)."""
        return self._table.salt_of(adapter, salt)

    def enter(self, request: Request) -> None:
        """Record an accepted request."""
        self._table.enter(request)

    def note_events(self, events: Sequence[TokenEvent]) -> None:
        """Forget the requests that a step has ended."""
        if not self._table.is_used:
            return
        for event in events:
            if event.finish_reason is not None:
                self._table.leave(event.id)

    def leave(self, request_id: str) -> None:
        """Forget a request that has ended. Unknown ids are ignored."""
        self._table.leave(request_id)

    def number_of(self, request_id: str) -> int:
        """Return the number of an entered request's adapter, from 1; 0: it has no adapter."""
        return self._table.number_of(request_id)

    def _next(self, name: str, path: str) -> AdapterInfo:
        self._num_loads += 1
        return AdapterInfo(name, path, self._num_loads, state="loading")

    def _install(self, info: AdapterInfo, weights: AdapterWeights) -> Resident:
        begun = time.perf_counter()
        resident = self._table.add(info.name, info.path, info.version, weights.rank, weights.digest)
        number = resident.place + 1
        self._weights[number] = weights
        where = "in host memory"
        if self.assignment.num_free:
            self.assignment.bring(number, in_use=())
            self.finish_copies()
            where = f"slot: {self.assignment.slot_of(number)}"
        if self._max_loaded == self.assignment.num_slots:
            del self._weights[number]  # it stays in its slot
        logger.info(
            "Adapter %s is loaded from %s. rank: %d, layers: %d, %s, copied in %.1f ms",
            *(info.name, info.path, weights.rank, len(weights.layers), where),
            (time.perf_counter() - begun) * 1e3,
        )
        return resident

    def _finish_copy(self) -> None:
        write, copying = self._copies.popleft()
        copying.result()
        self.assignment.arrive(write)

    def _forget(self, number: int) -> None:
        """Forget an adapter that has left its place."""
        self._weights.pop(number, None)
        self.assignment.remove(number)


def _check_name(name: str) -> None:
    if wrong := what_is_wrong(name):
        raise RequestError(f"the adapter's name is {name!r:.100}; {wrong}", param="name")
