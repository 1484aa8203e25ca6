"""The core of llmfw: interfaces, the engine, and the door that plugins come in by.

A plugin author imports `hookimpl` from here and the interface to implement from its own module
(`llmfw.core.attention`, `llmfw.core.policy`, …). Importing this package imports nothing heavy.
"""

import pluggy

from .errors import PluginError

hookimpl = pluggy.HookimplMarker("llmfw")

__all__ = ["PluginError", "hookimpl"]
