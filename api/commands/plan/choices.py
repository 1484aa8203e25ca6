"""Allowed values and defaults for the options of `llmfw plan`.

Every command imports this module, so it imports almost nothing.
"""

from __future__ import annotations

from llmfw.core.interfaces.kv_dtype_names import KV_DTYPE_BYTES

FRACTION, MAX_RUNNING, CHUNK, ADAPTER_RANK = 0.88, 512, 8192, 16
"""Defaults, equal to those of `llmfw serve` on a GPU; a test compares them."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BYTES = KV_DTYPE_BYTES
