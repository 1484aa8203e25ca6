"""Loads and unloads adapters on all engines of a pool. If one engine fails, undoes the command on all."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

import msgspec

from llmfw.core.base.control import (
    AdapterCommand,
    AdapterInfo,
    AdapterList,
    ListAdapters,
    LoadAdapter,
    UnloadAdapter,
)
from llmfw.core.base.errors import EngineDeadError, LLMFWError, ModelNotFoundError

from ..adapter_memory import AdapterMemory
from ..supervisor import SupervisedEngineClient
from .replica import Replica
from .replica_set import ReplicaSet

logger = logging.getLogger(__name__)

POLL_S = 0.02
"""Seconds between two checks whether an adapter is loaded."""
MAX_FAILED = 32
"""Maximum number of failed loads to remember."""


class PoolAdapters:
    """Carries out adapter commands on all running engines. Other engines get the adapters at their start.

    Args:
        replicas: all engines.

    Attributes:
        changing: lock that a command holds while it changes or lists adapters.
        digests: hash of the files of each adapter that takes requests, by its name.
    """

    def __init__(self, replicas: ReplicaSet) -> None:
        self.digests: dict[str, str] = {}
        self._replicas = replicas
        self._memory = AdapterMemory()
        self._numbers: dict[tuple[str, str, str], int] = {}  # name, path and digest → number of the load
        self._num_loads = 0
        self._failed: deque[AdapterInfo] = deque(maxlen=MAX_FAILED)
        self.changing = asyncio.Lock()

    def begin(self, adapters: Iterable[AdapterInfo]) -> None:
        """Note the adapters that the engines loaded at their start."""
        self.digests = {each.name: each.digest for each in adapters}

    def digest_of(self, name: str) -> str | None:
        """Return the hash of a ready adapter's files; None if no ready adapter has this name."""
        return self.digests.get(name)

    async def carry_out(self, command: AdapterCommand) -> AdapterList:
        """Carry out a command; return once the adapter is loaded or has failed. Raises as an engine does."""
        async with self.changing:
            match command:
                case ListAdapters():
                    return await self._list()
                case LoadAdapter():
                    return await self._load(command)
                case UnloadAdapter():
                    return await self._unload(command)

    async def bring_up_to_date(self, client: SupervisedEngineClient) -> None:
        """Load the other engines' adapters on a newly started engine. The caller holds `changing`."""
        await self._memory.restore(client.control)

    async def _load(self, command: LoadAdapter) -> AdapterList:
        before = {index: _ready(found) for index, found in (await self._ask(ListAdapters())).items()}
        replicas = [replica for index in before if (replica := self._replicas.find(index)) is not None]
        loads = await asyncio.gather(
            *(_load_on(replica, command) for replica in replicas), return_exceptions=True
        )
        wrong = [each for each in loads if not isinstance(each, EngineDeadError) and not _is_ready(each)]
        if wrong:
            done = [replica for replica, load in zip(replicas, loads, strict=True) if _is_ready(load)]
            await asyncio.gather(*(_undo(each, command.name, before[each.index]) for each in done))
            if isinstance(wrong[0], BaseException):
                raise wrong[0]
            self._num_loads += 1
            self._failed.append(msgspec.structs.replace(wrong[0], version=self._num_loads))
        elif not any(map(_is_ready, loads)):
            raise EngineDeadError("all engines ended meanwhile")
        else:
            digest = next(each.digest for each in loads if isinstance(each, AdapterInfo) and _is_ready(each))
            await self._settle(
                lambda found: _digests(found).get(command.name) == digest,
                lambda replica: _load_on(replica, command),
            )
        return await self._list()

    async def _unload(self, command: UnloadAdapter) -> AdapterList:
        try:
            await self._ask(command)
        except ModelNotFoundError:
            if any(command.name in _ready(found) for found in (await self._ask(ListAdapters())).values()):
                await asyncio.gather(*(_undo(each, command.name, {}) for each in self._running()))
            else:
                raise
        await self._settle(
            lambda found: command.name not in _ready(found), lambda replica: replica.client.control(command)
        )
        return await self._list()

    async def _settle(
        self, is_done: Callable[[AdapterList], bool], do: Callable[[Replica], Awaitable[object]]
    ) -> None:
        """Carry out a command on the engines that have started while the others carried it out.

        Args:
            is_done: whether an engine with these adapters has carried out the command.
            do: carries out the command on one engine.
        """
        lists = await self._ask(ListAdapters())
        if done := {index: each for index, each in lists.items() if is_done(each)}:
            self._remember(self._merged(done))  # engines that start from now on carry it out
        lists = await self._ask(ListAdapters())
        late = [self._replicas.find(index) for index, each in lists.items() if not is_done(each)]
        results = await asyncio.gather(*(do(each) for each in late if each), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, EngineDeadError):
                logger.error("An engine that was restarted has other adapters than the others: %s", result)

    async def _list(self) -> AdapterList:
        """Return the adapters. Restarted engines will load the adapters that take requests now."""
        found = self._merged(await self._ask(ListAdapters()))
        self.digests = _digests(found)
        self._remember(found)
        return found

    def _remember(self, found: AdapterList) -> None:
        """Load these adapters on engines that start from now on."""
        self._memory.note(found)
        for replica in self._replicas:
            if not replica.is_usable:
                replica.client.settings.adapters.note(found)

    def _merged(self, lists: Mapping[int, AdapterList]) -> AdapterList:
        first = next(iter(lists.values()))
        infos = [*self._several("ready", lists), *self._several("unloading", lists), *self._failed]
        return AdapterList(infos, first.max_adapters, first.max_rank, first.max_loaded)

    def _several(self, state: str, lists: Mapping[int, AdapterList]) -> Iterator[AdapterInfo]:
        """Yield one entry per adapter in a state. A ready adapter that some engines lack is "loading"."""
        found: dict[tuple[str, str, str], list[AdapterInfo]] = {}
        for each in (info for one in lists.values() for info in one.adapters if info.state == state):
            found.setdefault((each.name, each.path, each.digest), []).append(each)
        for key in sorted(found):
            infos = found[key]
            is_everywhere = state != "ready" or len(infos) == len(lists)
            yield msgspec.structs.replace(
                infos[0],
                version=self._number_of(key),
                state=state if is_everywhere else "loading",
                num_requests=sum(info.num_requests for info in infos),
            )

    def _number_of(self, key: tuple[str, str, str]) -> int:
        """Return the number of a load. The first call for a key draws a new number."""
        if key not in self._numbers:
            self._num_loads += 1
            self._numbers[key] = self._num_loads
        return self._numbers[key]

    def _running(self) -> list[Replica]:
        """Return the engines that take commands now. If there are none, return the first, for its error."""
        running = [replica for replica in self._replicas if replica.is_usable]
        return running or [next(iter(self._replicas))]

    async def _ask(self, command: AdapterCommand) -> dict[int, AdapterList]:
        """Return the answers of all running engines, by number. Raise the first error of a live engine."""
        replicas = self._running()
        answers = await asyncio.gather(
            *(replica.client.control(command) for replica in replicas), return_exceptions=True
        )
        found: dict[int, AdapterList] = {}
        ended: list[EngineDeadError] = []
        for replica, answer in zip(replicas, answers, strict=True):
            if isinstance(answer, EngineDeadError):
                ended.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[replica.index] = _listed(answer)
        if not found:
            raise ended[0]
        return found


async def _load_on(replica: Replica, command: LoadAdapter) -> AdapterInfo:
    """Load an adapter on one engine; return the adapter's state once it is loaded or has failed."""
    found = _listed(await replica.client.control(command))
    version = max(each.version for each in found.adapters if each.name == command.name)
    while True:
        [info] = [
            each for each in found.adapters if (each.name, each.version) == (command.name, version)
        ] or [AdapterInfo(command.name, command.path, version, "failed", error="it was unloaded meanwhile")]
        if info.state != "loading":
            return info
        await asyncio.sleep(POLL_S)
        found = _listed(await replica.client.control(ListAdapters()))


async def _undo(replica: Replica, name: str, before: Mapping[str, str]) -> None:
    """Restore the adapter that had this name before a command; unload the current one if there was none."""
    try:
        if name in before:
            await _load_on(replica, LoadAdapter(name, before[name]))
        else:
            await replica.client.control(UnloadAdapter(name))
    except LLMFWError as error:
        if not isinstance(error, EngineDeadError | ModelNotFoundError):
            logger.error(
                "Adapter %s is another one on engine %d than on the others: %s", name, replica.index, error
            )


def _is_ready(load: AdapterInfo | BaseException) -> bool:
    return isinstance(load, AdapterInfo) and load.state == "ready"


def _listed(answer: object) -> AdapterList:
    assert isinstance(answer, AdapterList), f"an engine listed its adapters by {answer!r}"
    return answer


def _digests(found: AdapterList) -> dict[str, str]:
    """Return the hash of the files of each adapter that takes requests."""
    return {each.name: each.digest for each in found.adapters if each.state == "ready"}


def _ready(found: AdapterList) -> dict[str, str]:
    """Return the path of each adapter that takes requests."""
    return {each.name: each.path for each in found.adapters if each.state == "ready"}
