"""Known GPUs, with the memory that CUDA reports for them, which is less than the advertised size."""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

GIB = 1 << 30
DEVICES = {"h200": 139.8, "h100": 79.1, "a100-80": 79.1, "a100-40": 39.4, "l40s": 44.4, "4090": 23.6}
"""Maps the name of a GPU to its memory in GiB."""

_OWN = re.compile(r"([\w.-]+)=(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: its name, and its memory in bytes."""

    name: str
    num_bytes: int


class DeviceType(click.ParamType[Device, str | Device]):
    """Option type for a known GPU, or for NAME=GiB."""

    name = "device"

    def convert(
        self, value: str | Device, param: click.Parameter | None, ctx: click.Context | None
    ) -> Device:
        if isinstance(value, Device):
            return value
        if value.lower() in DEVICES:
            return known(value.lower())
        found = _OWN.fullmatch(value)
        if found is None or not float(found[2]):
            names = ", ".join(DEVICES)
            self.fail(f"{value!r} is neither one of {names} nor NAME=GiB, as in mine=24", param, ctx)
        return Device(found[1], int(float(found[2]) * GIB))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(DEVICES)}|NAME=GiB]"


def known(name: str) -> Device:
    """Return a known GPU by its name."""
    return Device(name, int(DEVICES[name] * GIB))


def all_by_size() -> list[Device]:
    """Return the known GPUs in ascending order of memory."""
    return sorted(map(known, DEVICES), key=lambda device: device.num_bytes)
