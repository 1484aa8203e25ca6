"""Reads files again when they change while the server runs, and keeps the last content that was valid."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from llmfw.core.base.errors import ConfigError

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between checks of the files for changes. A removed key is refused soon after the next check."""
SETTLE_S = 0.1
"""Seconds for which a changed file must stay the same before it is read; an editor may write it in pieces."""
MAX_SETTLE = 20
"""Maximum number of waits of SETTLE_S for a file. If it still changes after that, it is read anyway."""

Signature = tuple[int, int, int, int]
"""Inode, size, mtime and ctime of a file, of which at least one differs once the file has changed."""

ContentT = TypeVar("ContentT")


def signature_of(path: Path) -> Signature | None:
    """Return a file's signature; None if the file is not accessible."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class FileWatch(Generic[ContentT]):
    """Reads some files again when one of them changes, or on request.

    Create it before the files are read for the first time. If they are not valid, the reason is logged, and
    the last valid content stays in use.

    Args:
        what: what the files hold, in the plural, for the log, such as "API keys".
        paths: the files; if there are none, `start` does nothing.
        read: function that reads all files and returns their content; raises ConfigError if they are not
            valid. It is called in a thread.
        use: function that puts the content into effect, and returns a note for the log.
    """

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        read: Callable[[], ContentT],
        use: Callable[[ContentT], str],
    ) -> None:
        self.paths = tuple(paths)
        self._what = what
        self._read = read
        self._use = use
        self._signatures = self._look()
        self._watching: asyncio.Task[None] | None = None
        self._is_due = asyncio.Event()
        self._reading = asyncio.Lock()

    def start(self) -> None:
        """Start to look for changes."""
        if self.paths:
            self._watching = asyncio.create_task(self._watch())

    def read_again(self) -> None:
        """Read the files soon, even if they are unchanged. Before `start`, wait until `start` is called."""
        self._is_due.set()

    async def reload(self) -> None:
        """Read the files now, even if they have not changed; raise ConfigError if they are not valid."""
        if self.paths:
            await self._follow(is_due=True)

    async def close(self) -> None:
        """Stop looking for changes."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_due.wait(), LOOK_S)
            is_due = self._is_due.is_set()
            self._is_due.clear()
            try:
                with contextlib.suppress(ConfigError):  # `_follow` has logged it
                    await self._follow(is_due=is_due)
            except Exception:
                logger.exception("The files of %s could not be looked at", self._what)

    async def _follow(self, *, is_due: bool = False) -> None:
        """Read the files if they have changed, after waiting for writes to finish.

        Args:
            is_due: whether to read them even if they have not changed.

        Raises:
            ConfigError: they are not valid.
        """
        async with self._reading:
            found = await asyncio.to_thread(self._look)
            if found == self._signatures and not is_due:
                return
            found = await self._settled(found)
            content = error = None
            try:
                content = await asyncio.to_thread(self._read)
            except ConfigError as caught:
                error = caught
            if await asyncio.to_thread(self._look) != found:
                if is_due:
                    self.read_again()
                return  # a file changed while it was read; the next check will notice this
            self._signatures = found
            if error is not None:
                logger.error("The %s stay as they were: %s", self._what, error)
                raise error
            assert content is not None
            logger.info("Read the %s again; %s", self._what, self._use(content))

    async def _settled(self, found: tuple[Signature | None, ...]) -> tuple[Signature | None, ...]:
        """Wait until the files no longer change, or for MAX_SETTLE checks; return their signatures."""
        for _ in range(MAX_SETTLE):
            await asyncio.sleep(SETTLE_S)
            before, found = found, await asyncio.to_thread(self._look)
            if found == before:
                break
        return found

    def _look(self) -> tuple[Signature | None, ...]:
        return tuple(map(signature_of, self.paths))
