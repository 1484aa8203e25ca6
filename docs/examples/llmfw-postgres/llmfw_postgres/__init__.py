"""Files and batch jobs of llmfw in PostgreSQL, shared by any number of servers."""

from llmfw.core import hookimpl

NEEDS = ("psycopg", "psycopg_pool")


@hookimpl
def register_file_stores(register):
    register("postgres", "llmfw_postgres.files:PostgresFiles", summary="files in PostgreSQL", needs=NEEDS)


@hookimpl
def register_batch_stores(register):
    register(
        "postgres", "llmfw_postgres.batches:PostgresBatches", summary="batch jobs in PostgreSQL", needs=NEEDS
    )
