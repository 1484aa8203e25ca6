"""A uvicorn server that stops at once. uvicorn itself checks only ten times a second whether to stop."""

from __future__ import annotations

import asyncio
import socket

import uvicorn

TICK_S = 0.005


class PromptServer(uvicorn.Server):
    """Sleeps less than uvicorn's server does, because hundreds of tests start and stop one."""

    async def main_loop(self) -> None:
        """Serve until `should_exit` is set."""
        counter = 0
        while not await self.on_tick(counter):
            counter = (counter + 1) % 864_000
            await asyncio.sleep(TICK_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop at once without connections; otherwise wait for them as uvicorn does, for at least 0.1 s."""
        for server in self.servers:
            server.close()
        for _ in range(3):  # the loop notices in its next rounds that a client has left
            await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
            return
        for server in self.servers:
            await server.wait_closed()
        for sock in sockets or []:
            sock.close()
        await self.lifespan.shutdown()
