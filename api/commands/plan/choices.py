"""Allowed values and defaults of the options of `llmfw plan`. Imports almost nothing, because every command imports it."""

from __future__ import annotations

from llmfw.core.interfaces.kv_dtype_names import KV_DTYPE_BYTES

FRACTION, MAX_RUNNING, CHUNK = 0.88, 512, 8192
"""Defaults of `llmfw serve` on a GPU; a test checks that both agree."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BYTES = KV_DTYPE_BYTES
