"""Runs a file of requests with the stores, engine and runner of a server, without HTTP.

The engine has a process of its own, as in a server. So the engine's steps and the work on lines (tokens,
JSON, the store) do not wait for each other. If the engine dies, for example for lack of memory, this process
can still report the progress. All finished work is in the stores at any time, so an interrupted run can be
continued.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from llmfw.api.access.ownership import Ownership
from llmfw.api.batches.deferring import DeferringClient
from llmfw.api.batches.service import BatchService, open_batches
from llmfw.api.responses.memory import ResponseMemory
from llmfw.api.responses.service import ResponseService
from llmfw.api.schemas.batches import CreateBatchRequest
from llmfw.api.server.limits import body_limits
from llmfw.api.services.answering import Answering
from llmfw.api.services.components import start_engine
from llmfw.api.services.observing import observed, observing
from llmfw.api.services.services import SECONDS_A_DAY
from llmfw.api.services.stores import Stores, open_stores
from llmfw.api.services.vision import build_vision
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.config import EngineConfig, ServerConfig
from llmfw.core.base.errors import ConfigError, EngineDeadError
from llmfw.core.client.client import EngineClient
from llmfw.core.client.observers import Observers
from llmfw.core.client.process import ProcessEngineClient
from llmfw.core.client.replicas.start import engine_client
from llmfw.core.client.watchdog import WatchdogLimits
from llmfw.core.interfaces.batch_store import ENDED, BatchRecord
from llmfw.core.interfaces.file_store import FileRecord, FileStore
from llmfw.core.plugin.option_keys import refuse_options
from llmfw.core.plugin.plugins import Plugins
from llmfw.core.plugin.preparation import begin_to_prepare

from .folder import Subject
from .whole_file import whole_file

INPUT_ID = "file-input"
WINDOW = "30d"
LOOK_S = 0.25
PIECE = 2**20
MARK = "run"  # part of the outputs' temporary names; the folder's lock excludes other runs


class FileRun:
    """One attempt to run a file of requests.

    Args:
        source: the file of requests.
        subject: digest of the file and name of the model; must match `source`.
        endpoint: path of the endpoint, with `/v1`.
        output, errors: paths of the output and error files, which are written as a whole at the end. No error
            file is written if no line failed.
        on_state: called from time to time with a word for the current work and, once the job exists, its
            record.

    Attributes:
        has_nothing: whether the stores contain no job, so that removing their folder loses nothing.
    """

    def __init__(
        self,
        source: Path,
        subject: Subject,
        endpoint: str,
        output: Path,
        errors: Path,
        on_state: Callable[[str, BatchRecord | None], None],
    ) -> None:
        self._source = source
        self._subject = subject
        self._endpoint = endpoint
        self._output = output
        self._errors = errors
        self._on_state = on_state
        self.has_nothing = False

    async def run(self, engine: EngineConfig, config: ServerConfig, plugins: Plugins) -> BatchRecord:
        """Run the job to its end, from where the last attempt stopped; return the job's final record.

        The call can be cancelled at any time.

        Args:
            config: server configuration with the run's own `storage` and stores.

        Raises:
            ConfigError: the model or a component cannot be loaded.
            EngineError: the engine could not be started, or died too often.
            OutputError: the output or error file cannot be written.
        """
        for kind in ("authenticator", "middleware", "adapter_source"):
            refuse_options(kind, config.options, "this command serves no HTTP; leave the option out")
        stores = await open_stores(config, plugins.registry)
        try:
            record = await _job_in(stores)
            self.has_nothing = record is None
            if record is None:
                await self._store_input(stores.files)
            if record is None or record.status not in ENDED:
                async with (
                    observing(config, plugins.registry) as observers,
                    _answering(engine, config, plugins, stores, observers, self._on_state) as answering,
                ):
                    record = await self._follow(record, *answering, stores)
            await self._deliver(record, stores.files)
            return record
        finally:
            await stores.close()

    async def _store_input(self, files: FileStore) -> None:
        """Copy the file of requests to the store. Afterwards, the file can be changed or removed."""
        digest = hashlib.sha256()

        async def pieces() -> AsyncIterator[bytes]:
            for piece in _pieces(self._source):
                digest.update(piece)
                yield piece

        def describe(size: int) -> FileRecord:
            if (size, digest.hexdigest()) != (self._subject.num_bytes, self._subject.sha256):
                raise ConfigError(
                    f"{str(self._source)!r} changes while it is read; run it when it is finished"
                )
            return FileRecord(
                id=INPUT_ID,
                filename=self._source.name,
                purpose="batch",
                bytes=size,
                created_at=int(time.time()),
            )

        await files.put(pieces(), describe)

    async def _follow(
        self, record: BatchRecord | None, client: EngineClient, batches: BatchService, stores: Stores
    ) -> BatchRecord:
        """Create the job if there is none, report its progress, and return its record once it has ended."""
        self.has_nothing = False
        if record is None:
            asked = CreateBatchRequest(
                input_file_id=INPUT_ID, endpoint=self._endpoint, completion_window=WINDOW
            )
            batch_id = (await batches.create(asked)).id
        else:
            batch_id = record.id
        while True:
            record = await stores.batches.get(batch_id)
            self._on_state(record.status, record)
            if record.status in ENDED:
                return record
            if client.failure is not None:
                raise EngineDeadError(client.failure)
            await asyncio.sleep(LOOK_S)

    async def _deliver(self, record: BatchRecord, files: FileStore) -> None:
        """Write the results to their paths. The output comes last: if it exists, everything was written."""
        if record.status == "failed" and not (record.output_file_id or record.error_file_id):
            return
        self._on_state("writing", record)
        if record.error_file_id is not None:
            await _write(files, record.error_file_id, self._errors)
        else:
            self._errors.unlink(missing_ok=True)
        await _write(files, record.output_file_id, self._output)


async def _job_in(stores: Stores) -> BatchRecord | None:
    """Return the run's job, or None if no earlier attempt created it."""
    found = await stores.batches.list(limit=1)
    return found[0] if found else None


def _pieces(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            yield piece


async def _write(files: FileStore, file_id: str | None, path: Path) -> None:
    with whole_file(path, MARK) as file:
        if file_id is not None:
            async for piece in files.read(file_id):
                file.write(piece)


@contextlib.asynccontextmanager
async def _answering(
    engine: EngineConfig,
    config: ServerConfig,
    plugins: Plugins,
    stores: Stores,
    observers: Observers,
    on_state: Callable[[str, BatchRecord | None], None],
) -> AsyncIterator[tuple[EngineClient, BatchService]]:
    """Start an engine and the service that runs batches on it; yield both, and close them afterwards."""
    on_state(f"loading {config.served_model_name}", None)
    begin_to_prepare(engine, plugins.registry)
    limits = WatchdogLimits.of(config.watchdog_timeout)
    client = engine_client(
        engine, config, plugins.registry, lambda own: ProcessEngineClient(own, watchdog=limits)
    )
    try:
        components = await start_engine(client, engine, config, plugins.registry)
        ownership = Ownership()  # all files of a run have one owner
        memory = ResponseMemory(
            stores.responses,
            stores.response_store,
            config.response_ttl_days * SECONDS_A_DAY,
            ownership,
        )
        vision = build_vision(components.image_prompts, config, None)
        answering = Answering(
            DeferringClient(observed(client, observers, config.served_model_name)),
            components,
            config,
            vision=vision,
        )
        models = ByModel([(answering.generator.names, answering)])
        batches = open_batches(
            models.map(lambda _: client),
            models,
            ResponseService(models.map(lambda model: model.chat), memory),
            stores.files,
            stores.batches,
            strict=config.strict_params,
            limits=body_limits(config),
            ownership=ownership,
            folder=stores.folder,
        )
        await batches.start()
        try:
            yield client, batches
        finally:
            await batches.close()
            await answering.generator.close()
            if vision is not None:
                await vision.close()
    finally:
        await client.close()
