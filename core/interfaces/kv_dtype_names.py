"""In which dtypes keys and values can be kept, by the names of `--kv-cache-dtype`. Imports nothing.

What they are in torch, and how numbers get into them, is in `dtype`.
"""

from __future__ import annotations

KV_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of a number. fp8 is another name of fp8_e4m3."""
