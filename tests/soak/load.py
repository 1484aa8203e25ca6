"""A load that does not wait for its server: visits begin at times that a seed gives, whatever became of those before.

Knows nothing of what a visit asks.
"""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import httpx
import msgspec

from .visits import KINDS, Visit, WrongReplyError

TIMEOUT_S = 300.0


class Outcome(msgspec.Struct, frozen=True):
    """What became of a visit.

    Attributes:
        at_s: when it was due, in seconds since the load began.
        first_s: seconds from then to the first token of its stream; None without one.
        total_s: seconds from then to its end.
        error: empty if all went as it should.
    """

    at_s: float
    kind: str
    first_s: float | None
    total_s: float
    error: str = ""


class Load(threading.Thread):
    """A load, in a thread of its own, until it is left.

    Args:
        url: of the server.
        keys: of the tenants, who take turns at random; empty for a server without keys.
        rate: visits in a second. The times between them are exponential.
        seed: gives the times, the kinds and the content.
        report: is told of each visit's end, in this thread.
        kinds: the visits' names; empty for all.
        verify: as of `httpx.Client`: whom a server with HTTPS must be certified by.

    Attributes:
        keys: as above; another list takes effect with the next visit.
        began: when it began, on the clock of `time.monotonic`.
    """

    def __init__(
        self,
        url: str,
        keys: Sequence[str],
        rate: float,
        seed: int,
        report: Callable[[Outcome], None],
        kinds: Sequence[str] = (),
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        super().__init__(daemon=True)
        self.keys = keys
        self._url, self._rate, self._seed, self._verify = url, rate, seed, verify
        self._kinds: Mapping[str, int] = {name: KINDS[name][0] for name in kinds or KINDS}
        self._report = report
        self._ending = threading.Event()
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Begin no visit any more, and wait for the end of those that have begun."""
        self._ending.set()
        self.join()
        with warnings.catch_warnings():  # httpx leaves some of the connections that were cut unclosed
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        times = random.Random(self._seed)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        due = self.began
        async with (
            httpx.AsyncClient(
                base_url=self._url, verify=self._verify, trust_env=False, timeout=TIMEOUT_S, limits=limits
            ) as http,
            asyncio.TaskGroup() as visits,
        ):
            number = 0
            while not self._ending.is_set():
                due += times.expovariate(self._rate)
                while (wait := due - time.monotonic()) > 0 and not self._ending.is_set():
                    await asyncio.sleep(min(wait, 0.2))
                await asyncio.sleep(0)  # a load that is late lets its visits go on, too
                visits.create_task(self._visit(http, random.Random(f"{self._seed}/{number}"), due))
                number += 1

    async def _visit(self, http: httpx.AsyncClient, draw: random.Random, due: float) -> None:
        [kind] = draw.choices(list(self._kinds), list(self._kinds.values()))
        headers = {"authorization": f"Bearer {draw.choice(self.keys)}"} if self.keys else {}
        visit, error = Visit(http, headers, draw), ""
        try:
            await KINDS[kind][1](visit)
        except (WrongReplyError, httpx.HTTPError, TimeoutError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        total_s = time.monotonic() - due
        first_s = visit.first_at - due if visit.first_at else None
        self._report(Outcome(due - self.began, kind, first_s, total_s, error))
