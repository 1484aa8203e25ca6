"""Builds the services of a server, for the HTTP application or for a batch run without one.

Does not depend on routes or on how the engine process is started.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.api.access.keyring import Keyring
from llmfw.api.access.ownership import Ownership, warn_of_unowned
from llmfw.api.adapters.isolated_source import IsolatedSource
from llmfw.api.adapters.search import AdapterSearch
from llmfw.api.admin.replicas import ReplicaService
from llmfw.api.batches.job_context import LimitedTenants
from llmfw.api.batches.service import open_batches
from llmfw.api.files.disk_space import DiskSpace
from llmfw.api.files.expiry import FileExpiry
from llmfw.api.files.service import FileService
from llmfw.api.files.uploads import UploadService
from llmfw.api.responses.memory import ResponseMemory
from llmfw.api.responses.service import ResponseService
from llmfw.api.server.limits import body_limits
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.config import ServerConfig

from .model_services import ModelServices, StartedModel
from .stores import Stores

SECONDS_A_DAY = 24 * 3600


class Services:
    """All services of a server.

    Args:
        models: the models, at least one.
        stores: opened stores; `close` closes them.
        keys: API keys of the clients; None: no keys.
        tenants: as in `open_batches`.
        source: finds adapters of the first model that requests name and that are not loaded; None: such requests
            are refused.

    Attributes:
        models: services of each model. Batches have separate services, whose requests are deferrable.
    """

    def __init__(
        self,
        models: Sequence[StartedModel],
        stores: Stores,
        config: ServerConfig,
        keys: Keyring | None = None,
        tenants: LimitedTenants | None = None,
        source: IsolatedSource | None = None,
    ) -> None:
        self._ownership = Ownership(keys, config.adopt_unowned)
        self._keys = keys
        self._memory = ResponseMemory(
            stores.responses,
            stores.response_store,
            config.response_ttl_days * SECONDS_A_DAY,
            self._ownership,
        )
        self._stores = stores
        space = DiskSpace(config.storage, config.min_free_disk_mb)
        self.files = FileService(stores.files, stores.batches, self._ownership, space)
        self.uploads = UploadService(stores.files, self._ownership, space)
        self._file_expiry = FileExpiry(self.files)
        scope = keys if config.prefix_cache_scope == "key" else None
        served = [ModelServices(model, self.files, scope) for model in models]
        self.models = ByModel([(model.names, model) for model in served])
        self.responses = ResponseService(self.models.map(lambda model: model.live.chat), self._memory)
        self.replicas = ReplicaService(self.models.first.client)
        self._source, first = source, self.models.first
        self._search = None if source is None else AdapterSearch(source, first.adapters, first.names)
        first.names.search = None if self._search is None else self._search.find
        deferred = self.models.map(lambda model: model.deferred)
        self.batches = open_batches(
            self.models.map(lambda model: model.client),
            deferred,
            ResponseService(deferred.map(lambda answering: answering.chat), self._memory),
            stores.files,
            stores.batches,
            strict=config.strict_params,
            limits=body_limits(config),
            deleting=self.files.deleting,
            ownership=self._ownership,
            folder=stores.folder,
            tenants=tenants,
        )

    async def start(self) -> None:
        """Start background work, and recover or fail the work that an earlier server left unfinished."""
        if self._keys is not None:
            self._keys.start()
        if self._ownership.leaves_unowned():
            await warn_of_unowned(self._stores.files, self._stores.batches)
        await self._memory.start()
        for model in self.models:
            model.start()
        self._file_expiry.start()
        await self.batches.start()

    async def hand_back(self) -> None:
        """Release the batches, so that another server with the same stores can continue them."""
        await self.batches.close()

    async def finished(self) -> None:
        """Wait until no background response runs or is queued."""
        await self.responses.finished()

    async def end(self) -> None:
        """End the background responses, and store them as failed."""
        await self.responses.close()

    async def close(self) -> None:
        """Stop background work, and close the stores."""
        await self.batches.close()
        await self.responses.close()
        for model in self.models:
            await model.close()
        if self._search is not None and self._source is not None:
            await self._search.close()
            self._source.close()
        await self._memory.close()
        await self._file_expiry.close()
        if self._keys is not None:
            await self._keys.close()
        await self._stores.close()
