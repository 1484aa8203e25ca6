"""A client that starts its own engine processes, for a server."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager

from llmfw.core.base.errors import EngineLostError

from .client import EngineClient


class LaunchedEngineClient(EngineClient):
    """Starts one or several engine processes, and replaces those that end."""

    @abstractmethod
    def launched(self) -> AbstractContextManager[None]:
        """Start the first processes before the event loop exists, and end them at the end of the block.

        `start` connects to these processes. `close` ends processes that were started later.
        """

    @abstractmethod
    async def wait_lost(self) -> EngineLostError:
        """Wait until no engine runs and none will be restarted; return the reason as an error.

        Never returns if restarts are off: with `--restart never`, or after `stop_restarting`.
        """

    @abstractmethod
    def stop_restarting(self) -> None:
        """Turn restarts off, because the server is ending.

        An engine may end first: systemd, for example, stops all processes of a server at once.
        """

    @abstractmethod
    def show_stacks(self) -> None:
        """Make the engine processes log the stacks of their threads."""
