"""SQLite stores of files, batch jobs and responses. Their contents survive restarts and crashes."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_file_stores(register: Register) -> None:
    register(
        "sqlite",
        "llmfw.plugins.store_sqlite.files:SqliteFiles",
        summary="files in the folder files/ of --storage, what is known of them in files.db",
    )


@hookimpl
def register_batch_stores(register: Register) -> None:
    register(
        "sqlite",
        "llmfw.plugins.store_sqlite.batches:SqliteBatches",
        summary="batch jobs in batches.db in the folder of --storage",
    )


@hookimpl
def register_response_stores(register: Register) -> None:
    register(
        "sqlite",
        "llmfw.plugins.store_sqlite.responses:SqliteResponses",
        summary="responses in responses.db in the folder of --storage",
    )
