"""Files that exist only in memory, which a process and its children share."""

from __future__ import annotations

import os
import tempfile


def new_memory_file(name: str, size: int) -> int:
    """Create a file in memory that has no path; return its descriptor, for a child process to inherit.

    The caller must close the descriptor. The file exists as long as any process has it open or mapped.

    Args:
        name: name for debugging, as /proc shows it.
        size: size in bytes; the bytes are zeros.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(name)
    else:  # macOS
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, size)
    return descriptor
