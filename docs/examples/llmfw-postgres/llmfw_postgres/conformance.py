"""The promises of the stores, as tests: `llmfw check file_store postgres -o file_store.url=…`.

Each test has a schema of its own in the database that the options name, and drops it in the end.
"""

import hashlib
import os

import msgspec
import psycopg
import pytest
from psycopg import sql

from llmfw.core.testing import BatchStoreTests, FileStoreTests

from .batches import PostgresBatches
from .files import PostgresFiles


def schema_of(folder):
    """Return the name of a schema for what a test keeps in a folder."""
    return "test_" + hashlib.sha256(os.fsencode(folder)).hexdigest()[:20]


def schemas(store, options):
    """Yield a function that opens a store in the schema of a folder; drop all of them afterwards."""
    used = set()

    def open_store(folder):
        used.add(schema_of(folder))
        return store(None, msgspec.structs.replace(options, schema=schema_of(folder)))

    yield open_store
    with psycopg.connect(
        options.url, autocommit=True, options="-c client_min_messages=warning"
    ) as connection:
        for schema in used:
            connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema)))


class PostgresFilesTests(FileStoreTests):
    """The promises of a file store, of `PostgresFiles`."""

    @pytest.fixture
    def options(self):
        """Return the options of the store; `llmfw check` puts those that it is given in their place."""
        return PostgresFiles.Options()

    @pytest.fixture
    def open_store(self, options):
        yield from schemas(PostgresFiles, options)

    @pytest.fixture
    def survives_reopening(self):
        return True


class PostgresBatchesTests(BatchStoreTests):
    """The promises of a batch store, of `PostgresBatches`."""

    @pytest.fixture
    def options(self):
        """Return the options of the store; `llmfw check` puts those that it is given in their place."""
        return PostgresBatches.Options()

    @pytest.fixture
    def open_store(self, options):
        yield from schemas(PostgresBatches, options)

    @pytest.fixture
    def survives_reopening(self):
        return True
