"""Tests of the kernels need the interpreter or a device. What needs the interpreter stands in interpreted/.

Whether Triton interprets is decided by the environment when it is first imported, for a whole process. So those tests
are collected only where the environment says so: `TRITON_INTERPRET=1 pytest tests/plugins/attention_triton/interpreted`.
`test_interpreted_kernels.py` does that in a process of its own.
"""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]
