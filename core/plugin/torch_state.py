"""Restores torch's process-wide settings after a plugin's code has changed them.

Packages with kernels often change a setting when they are imported, such as the default dtype. All models and
requests of the process then compute different results, and nothing points to the plugin. Does not import
torch: a process that does not need it starts without it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

logger = logging.getLogger(__name__)

_LEAST_NORMAL = sys.float_info.min

State = dict[str, Any]
"""Name of a setting → its value."""


@contextlib.contextmanager
def keeping_torch_state(doing: Callable[[], str]) -> Iterator[None]:
    """Restore torch's settings after the block, and log a warning if the block has changed any.

    If the block imports torch for the first time, restores torch's own defaults. Thread-local settings
    (default device, gradients, denormals) are restored for the calling thread.

    Args:
        doing: function that returns a description of the block's action and of the plugin, such as "importing
            policy 'x' of plugin 'y'".
    """
    before = _read()
    try:
        yield
    finally:
        if changed := _restore(before):
            logger.warning(
                "%s changed settings of torch for the whole process: %s. llmfw has set them back, because other "
                "models and plugins compute with them; pass dtype and device to torch's functions instead, or "
                "change a setting only inside a 'with' block",
                doing(),
                ", ".join(changed),
            )


def _read() -> State:
    """Return the current settings. Leaves out torch's own settings if torch is not imported."""
    state: State = {"flush denormal": _flushes()}
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_num_threads"):  # absent, or still being imported
        return state
    state |= {
        "default dtype": torch.get_default_dtype(),
        "default device": _default_device(torch),
        "gradients": torch.is_grad_enabled(),
        "deterministic algorithms": _determinism(torch),
        "number of threads": torch.get_num_threads(),
    }
    with contextlib.suppress(RuntimeError):  # torch's old and new interface to this setting were mixed
        state["float32 matmul precision"] = torch.get_float32_matmul_precision()
    return state


def _restore(before: State) -> list[str]:
    """Restore all settings; return a description of each changed setting."""
    after, torch = _read(), sys.modules.get("torch")
    if torch is not None and "default dtype" not in before:
        before = before | _defaults_of(torch)
    changed = []
    for name, old in before.items():
        if name in after and after[name] != old:
            _SETTERS[name](torch, old)
            changed.append(f"{name} from {_spoken(old)} to {_spoken(after[name])}")
    return changed


def _defaults_of(torch: Any) -> State:
    """Return the settings that torch has when it has just been imported."""
    return {
        "default dtype": torch.float32,
        "default device": None,
        "gradients": True,
        "deterministic algorithms": (False, False),
        "float32 matmul precision": "highest",
    }


def _set_flush_denormal(torch: Any, value: bool) -> None:
    if torch is not None:
        torch.set_flush_denormal(value)


_SETTERS: dict[str, Callable[[Any, Any], object]] = {
    "flush denormal": _set_flush_denormal,
    "default dtype": lambda torch, value: torch.set_default_dtype(value),
    "default device": lambda torch, value: torch.set_default_device(value),
    "gradients": lambda torch, value: torch.set_grad_enabled(value),
    "deterministic algorithms": lambda torch, value: torch.use_deterministic_algorithms(
        value[0], warn_only=value[1]
    ),
    "number of threads": lambda torch, value: torch.set_num_threads(value),
    "float32 matmul precision": lambda torch, value: torch.set_float32_matmul_precision(value),
}


def _default_device(torch: Any) -> Any:
    """Return this thread's default device, or None for the CPU, which is torch's own default."""
    if not torch._C._len_torch_function_stack():  # a default device is kept there
        return None
    device = torch.get_default_device()
    return None if device.type == "cpu" else device


def _determinism(torch: Any) -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _flushes() -> bool:
    """Return whether this thread's processor replaces denormal numbers by zero.

    torch can set this, but not read it. A library that was built with -ffast-math sets it when it is loaded.
    """
    return _LEAST_NORMAL * 0.5 == 0.0


def _spoken(value: object) -> str:
    if isinstance(value, tuple):
        return "on" if value[0] else "off"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "cpu" if value is None else str(value)
