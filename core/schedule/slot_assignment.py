"""Which adapters are in the model's slots. Knows neither weights nor files.

More adapters may be loaded than there are slots. An adapter that a sequence needs takes a free slot, or the slot
of the adapter whose last use is longest ago and that no running sequence uses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class SlotWrite:
    """An adapter's weights must be written into a slot before the next step that uses them.

    Attributes:
        slot: index of the slot.
        adapter: number of the adapter, from 1.
    """

    slot: int
    adapter: int


class SlotAssignment:
    """The adapters in a model's slots. Adapters have numbers from 1, which are used again.

    Args:
        num_slots: number of slots.

    Attributes:
        num_found, num_brought: number of times that a sequence started with an adapter in a slot, and that an
            adapter was brought into a slot for a sequence.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.num_found = self.num_brought = 0
        self._free = list(range(num_slots - 1, -1, -1))
        self._slots: OrderedDict[int, int] = OrderedDict()  # adapter → slot, the least recently used first
        self._arriving: dict[int, SlotWrite] = {}
        self._writes: list[SlotWrite] = []

    def __contains__(self, adapter: int) -> bool:
        """Return whether an adapter has a slot."""
        return adapter in self._slots

    @property
    def num_free(self) -> int:
        """Number of slots without an adapter."""
        return len(self._free)

    @property
    def has_writes(self) -> bool:
        """Whether `take_writes` has something to return."""
        return bool(self._writes)

    @property
    def has_arriving(self) -> bool:
        """Whether there are slots whose weights are not there yet."""
        return bool(self._arriving)

    @property
    def adapters(self) -> list[int]:
        """Numbers of the adapters in slots, the least recently used first."""
        return list(self._slots)

    def slot_of(self, adapter: int) -> int | None:
        """Return the index of an adapter's slot; None: it has none, or its weights are not there yet."""
        return None if adapter in self._arriving else self._slots.get(adapter)

    def use(self, adapter: int) -> None:
        """Record that a sequence starts with an adapter that has a slot."""
        self._slots.move_to_end(adapter)
        self.num_found += 1

    def bring(self, adapter: int, in_use: Collection[int]) -> bool:
        """Give an adapter a slot; return whether there was one.

        Args:
            in_use: adapters that must stay in their slots.
        """
        assert adapter not in self._slots, f"adapter {adapter} has a slot"
        if not self._free:
            can_leave = (each for each in self._slots if each not in in_use and each not in self._arriving)
            leaving = next(can_leave, None)
            if leaving is None:
                return False
            self._free.append(self._slots.pop(leaving))
        slot = self._slots[adapter] = self._free.pop()
        self._arriving[adapter] = SlotWrite(slot, adapter)
        self._writes.append(self._arriving[adapter])
        self.num_brought += 1
        return True

    def take_writes(self) -> list[SlotWrite]:
        """Return the writes since the last call. The caller reports each by `arrive` once it is done."""
        writes, self._writes = self._writes, []
        return writes

    def arrive(self, write: SlotWrite) -> None:
        """Record that a write is done. Ignores the writes of adapters that have been unloaded meanwhile."""
        if self._arriving.get(write.adapter) is write:
            del self._arriving[write.adapter]

    def remove(self, adapter: int) -> None:
        """Free the slot of an adapter that is unloaded; ignores adapters without one."""
        slot = self._slots.pop(adapter, None)
        if slot is not None:
            self._free.append(slot)
            self._arriving.pop(adapter, None)
            self._writes = [each for each in self._writes if each.adapter != adapter]
