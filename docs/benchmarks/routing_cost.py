"""Processor time that routing takes for a request: its choice among many engines, its first output and its end.

    .venv/bin/python docs/benchmarks/routing_cost.py [--engines 64]

All engines have requests that wait, and a measured speed. Prints the median of the rounds' means, in microseconds.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator

import numpy as np

from llmfw.core.base.engine_info import EngineReport
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.cache_mirror import CacheMirror
from llmfw.core.client.prefix_index import PrefixIndex
from llmfw.core.client.replicas.dispatcher import Dispatcher
from llmfw.core.client.replicas.isolated_router import IsolatedRouter
from llmfw.core.client.replicas.replica_load import Place
from llmfw.core.client.replicas.request_prefixes import prompt_prefixes
from llmfw.core.client.replicas.routed_engine import RoutedEngine
from llmfw.core.interfaces.router import RoutedRequest
from llmfw.core.schedule.cache.prefix_hash import block_hashes
from llmfw.plugins.routers.prefix import Prefix

BLOCK = 16
NUM_WAITING = 4  # requests of each engine
CASES = {
    "64 tokens": (64, 0, 0),
    "512 tokens": (512, 0, 0),
    "512 tokens, 256 common to all": (512, 256, 0),
    "512 tokens, 480 cached by one engine": (512, 256, 480),
    "4096 tokens": (4096, 0, 0),
    "4096 tokens, 256 common to all": (4096, 256, 0),
    "4096 tokens, 4000 cached by one engine": (4096, 256, 4000),
}
"""Length of the prompts, tokens that all engines have cached, and tokens that one engine has cached."""


class Bench:
    """Engines, and prompts to route.

    Args:
        num_engines: number of engines.
        length, common, own: as in CASES.
    """

    def __init__(self, num_engines: int, length: int, common: int, own: int) -> None:
        self.rng = random.Random(0)
        self.length, self.common, self.own = length, common, own
        self.prefixes = PrefixIndex()
        self.dispatcher = Dispatcher(IsolatedRouter(Prefix(Prefix.Options())), self.prefixes)
        self.engines = [RoutedEngine(index, CacheMirror(lambda: None)) for index in range(num_engines)]
        self.system = self.tokens(common)
        for engine in self.engines:
            engine.mirror.publish(self.prefixes, engine.index)
            self.cache(engine, self.system, is_whole=True)
        self.numbers = itertools.count()

    def tokens(self, count: int) -> list[int]:
        """Return random token ids."""
        return [self.rng.randrange(1000, 150_000) for _ in range(count)]

    def cache(self, engine: RoutedEngine, tokens: list[int], *, is_whole: bool = False) -> None:
        """Have an engine report a prefix."""
        mirror = engine.mirror
        added = array("Q", block_hashes(np.array(tokens, np.int32), "", BLOCK)).tobytes()
        number = mirror._number + 1
        mirror.take(EngineReport(number, is_whole, BLOCK, added, b"", 12_000.0 + engine.index))

    def prompts(self, count: int) -> Iterator[Request]:
        """Yield new requests, of which an engine has cached as much as the case says."""
        for number in range(count):
            prompt = self.system + self.tokens(self.length - self.common)
            if self.own:
                self.cache(self.engines[number % len(self.engines)], prompt[: self.own])
            yield Request(id=f"r{next(self.numbers)}", prompt=prompt, sampling=SamplingParams(max_tokens=10))

    def route(self, request: Request) -> tuple[RoutedEngine, Place]:
        """Choose the engine of a request, as `Routing.enter` does."""
        prompt = prompt_prefixes(request, BLOCK, {})
        routed = RoutedRequest(len(request.prompt), request.tenant, request.cache_salt, request.deferrable)
        return self.dispatcher.enter(routed, prompt, BLOCK, self.engines)

    def us(self, count: int) -> float:
        """Return the mean processor time of a request's choice, first output and end, in microseconds."""
        requests = list(self.prompts(count))
        begun = time.thread_time()
        for request in requests:
            engine, place = self.route(request)
            engine.load.answered(place)
            engine.load.leave(place)
        return 1e6 * (time.thread_time() - begun) / count


def measure(num_engines: int, case: tuple[int, int, int], rounds: int, count: int) -> float:
    """Return the median over the rounds."""
    bench = Bench(num_engines, *case)
    for request in bench.prompts(NUM_WAITING * num_engines):
        bench.route(request)
    bench.us(count)  # warm
    return statistics.median(bench.us(count) for _ in range(rounds))


def main(show: Callable[[str], None] = print) -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=400)
    options = parser.parse_args()
    for name, case in CASES.items():
        show(f"{name}: {measure(options.engines, case, options.rounds, options.count):.1f} us")


if __name__ == "__main__":
    main()
