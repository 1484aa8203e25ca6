"""Which arguments FlashInfer's functions take: what is recorded, and what the installed package says.

Run it to record anew: `python tests/plugins/attention_flashinfer/signatures.py`, where FlashInfer is installed.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

RECORD = Path(__file__).with_name("signatures.json")
USED = {
    "BatchDecodeWithPagedKVCacheWrapper": ("__init__", "plan", "run", "reset_workspace_buffer"),
    "BatchPrefillWithPagedKVCacheWrapper": ("__init__", "plan", "run"),
    "fast_decode_plan": (),
}
"""What the plugin calls: classes with their methods, and functions."""

Parameters = list[tuple[str, str, bool]]
"""Name, kind, and whether it may be left out, of each."""


def recorded() -> dict[str, inspect.Signature]:
    """Return the recorded signatures, by "Class.method" or "function"."""
    return {name: _signature(parameters) for name, parameters in json.loads(RECORD.read_text()).items()}


def installed() -> dict[str, Parameters]:
    """Return what the installed package takes."""
    package = importlib.import_module("flashinfer")
    found = {}
    for name, methods in USED.items():
        used = getattr(package, name)
        for method in methods:
            found[f"{name}.{method}"] = _parameters(getattr(used, method))
        if not methods:
            found[name] = _parameters(used)
    return found


def _parameters(function: object) -> Parameters:
    assert callable(function)
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.kind.name, p.default is not p.empty) for p in found]


def _signature(parameters: Parameters) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                getattr(inspect.Parameter, kind),
                default=None if may_be_left_out else inspect.Parameter.empty,
            )
            for name, kind, may_be_left_out in parameters
        ]
    )


if __name__ == "__main__":
    lines = [f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in installed().items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
