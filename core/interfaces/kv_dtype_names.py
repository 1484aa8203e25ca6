"""Names of the dtypes in which keys and values can be stored, for `--kv-cache-dtype`.

Importing this module is cheap, because it does not import torch. The torch dtypes are in `kv_dtype`.
"""

from __future__ import annotations

KV_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes per element. fp8 is another name for fp8_e4m3."""
