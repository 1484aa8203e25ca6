"""In-memory stores of files, batch jobs and responses. They are fast, and empty after a restart."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_file_stores(register: Register) -> None:
    register(
        "memory",
        "llmfw.plugins.store_memory.files:MemoryFiles",
        summary="files in unnamed temporary files, gone after a restart",
    )


@hookimpl
def register_batch_stores(register: Register) -> None:
    register(
        "memory",
        "llmfw.plugins.store_memory.batches:MemoryBatches",
        summary="batch jobs in memory, gone after a restart",
    )


@hookimpl
def register_response_stores(register: Register) -> None:
    register(
        "memory",
        "llmfw.plugins.store_memory.responses:MemoryResponses",
        summary="responses in memory, gone after a restart",
    )
