"""Reads streams in a process of its own, so that this does not count as the server's CPU time.

A line to its standard input, `PORT STREAMS TOKENS`, opens the streams. A line of its output follows when all have been read.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from servers import Server
from streaming_cost import read_streams


class StreamReader:
    """The process that reads.

    Args:
        process: the process, with pipes.
    """

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    @classmethod
    @asynccontextmanager
    async def started(cls) -> AsyncIterator[Self]:
        """Run the process until the block ends."""
        process = await asyncio.create_subprocess_exec(sys.executable, __file__, stdin=PIPE, stdout=PIPE)
        reader = cls(process)
        try:
            yield reader
        finally:
            reader._input.close()
            await process.wait()

    async def ask(self, port: int, num: int, tokens: int) -> None:
        """Have streams of chat opened, each with so many tokens."""
        self._input.write(f"{port} {num} {tokens}\n".encode())
        await self._input.drain()

    async def wait_until_read(self) -> None:
        """Wait until all streams of one call of `ask` have been read.

        Raises:
            RuntimeError: a stream was cut.
        """
        if not await self._output.readline():
            raise RuntimeError("the reader has ended; its own lines above say why")


async def main() -> None:
    """Read what the lines of the standard input ask for, until it ends."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            port, num, tokens = map(int, line.split())
            tasks.create_task(_read(Server("llmfw", [], model="demo", port=port), num, tokens))


async def _read(server: Server, num: int, tokens: int) -> None:
    await read_streams(server, num, tokens)
    print("read", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
