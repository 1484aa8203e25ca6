"""What the options of `llmfw plan` may be, and are where nobody says. Imports next to nothing, as every command's start does it."""

from __future__ import annotations

from llmfw.core.interfaces.kv_dtype_names import KV_DTYPE_BYTES

FRACTION, MAX_RUNNING, CHUNK = 0.88, 512, 8192
"""What `llmfw serve` takes on a GPU where it is not told; a test holds the two together."""

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BYTES = KV_DTYPE_BYTES
