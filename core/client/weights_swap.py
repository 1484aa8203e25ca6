"""The checkpoint that an engine is started with. It can be replaced; if the new one cannot be loaded, the old one stays."""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from llmfw.core.base.control import MemoryInfo
from llmfw.core.base.engine_info import EngineInfo
from llmfw.core.base.errors import EngineError, RequestError
from llmfw.core.base.weights_command import LoadWeights, WeightsInfo

from .process import ProcessEngineClient
from .restarts import essence_of

logger = logging.getLogger(__name__)


class WeightsSwap:
    """The checkpoint of an engine, and the previous one while a new one is being loaded.

    Args:
        life_of: creates the client of an engine process that serves a checkpoint, by its path.
        path: folder of the first checkpoint, or its hub id.
        is_fixed: whether the checkpoint cannot be replaced.

    Attributes:
        path: the checkpoint that the next process serves.
    """

    def __init__(
        self, life_of: Callable[[str], ProcessEngineClient], path: str = "", *, is_fixed: bool = False
    ) -> None:
        self.path = path
        self._is_fixed = is_fixed
        self._life_of = life_of
        self._is_changing = False
        self._version = ""  # that the next checkpoint must have; "": any
        self._before: str | None = None  # what to fall back to
        self._error: str | None = None

    def new_life(self) -> ProcessEngineClient:
        """Return the client of a new engine process."""
        return self._life_of(self.path)

    def check(self) -> None:
        """Raise RequestError if the checkpoint cannot be replaced."""
        if self._is_fixed:
            raise unsupported()

    def begin(self, command: LoadWeights) -> None:
        """Start the next process with another checkpoint."""
        self._before = None if command.version else self.path
        self._is_changing, self._version, self.path, self._error = True, command.version, command.path, None

    def fall_back(self, error: object) -> bool:
        """Return to the previous checkpoint if a new one could not be loaded; return whether that is the case."""
        if self._before is None:
            return False
        self._error, self.path, self._before = str(error), self._before, None
        self._is_changing = False
        logger.error("The new weights cannot be served, and the old ones are loaded again: %s", error)
        return True

    def end(self) -> bool:
        """Note that a process has started; return whether it serves another checkpoint than the previous one."""
        was_changing, self._is_changing, self._before = self._is_changing, False, None
        return was_changing

    def is_alike(self, before: EngineInfo, now: EngineInfo) -> bool:
        """Return whether a new process serves the same as the previous one, apart from replaced weights."""
        if self._is_changing:
            version = self._version or now.weight_version
            before = msgspec.structs.replace(before, model=now.model, weight_version=version)
        return essence_of(before) == essence_of(now)

    def describe(self, info: EngineInfo, memory: MemoryInfo) -> WeightsInfo:
        """Return the description of the checkpoint in use."""
        return WeightsInfo(self.path, info.weight_version, memory.host_bytes, memory.device_bytes)

    def check_loaded(self) -> None:
        """Raise EngineError if the other checkpoint could not be loaded."""
        if self._error is not None:
            raise EngineError(
                f"the checkpoint could not be loaded, and the previous weights stay in use: {self._error}"
            )


class ServedWeights:
    """The checkpoint that new engines of a pool serve.

    Attributes:
        path: folder of the checkpoint, or its hub id.
    """

    def __init__(self, path: str) -> None:
        self.path = path


def unsupported() -> RequestError:
    """Return the error for engines whose checkpoint cannot be replaced."""
    return RequestError(
        "this engine cannot load other weights; use `llmfw serve --weights-from FOLDER`",
        code="unsupported_operation",
    )
