"""A long prompt beside streams: what it costs them, how fast it goes on, and what short prompts wait for meanwhile.

    .venv/bin/python docs/benchmarks/long_prompt.py --help

An engine in this process, with a model of random weights (their values change no time), whose streams decode alone and
then beside a prompt of 100,000 tokens: in turns with the guard of `--prefill-stretch` and without it, and each once with
short prompts that come at random times. Prints a table for docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import torch
from tables import write_between

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.engine.generation.engine import Engine
from llmfw.core.plugin.plugins import load_plugins

# One layer, wide, with little attention: so that 100,000 tokens take a minute or two on two cores, and that at their end
# a token's attention costs about as much as all else, as it does with a model of 8B weights.
VOCAB_SIZE = 16000
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 512,
    "intermediate_size": 8192,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 131072,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": True,
}


@dataclass
class Turn:
    """What was seen in one turn.

    Attributes:
        stretch: of the guard; 0: none.
        shorts: how many short prompts came a second.
        alone, beside: seconds from one token of a stream to its next, of all streams, without and with the long prompt.
        long_s: from the long prompt's arrival to its first token.
        short_alone, short_beside: seconds to the first tokens of short prompts.
    """

    stretch: float
    shorts: float
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    long_s: float = 0.0
    short_alone: list[float] = field(default_factory=list)
    short_beside: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, float]:
        """Return what is compared, in milliseconds but for the long prompt's seconds."""
        found = {"long prompt, s": self.long_s}
        for name, values in (("alone", self.alone), ("beside", self.beside)):
            found |= {f"ITL p{p} {name}": 1e3 * percentile(values, p) for p in (50, 99)}
        if self.short_alone and self.short_beside:
            found["short TTFT p50 alone"] = 1e3 * statistics.median(self.short_alone)
            found["short TTFT p50 beside"] = 1e3 * statistics.median(self.short_beside)
            found["short TTFT max beside"] = 1e3 * max(self.short_beside)
        found["ITL p99, times"] = found["ITL p99 beside"] / found["ITL p99 alone"]
        return found


class Load:
    """Streams, short prompts and one long prompt on an engine, with the times of their tokens.

    Args:
        seed: of prompts and arrivals.
        shorts: how many come a second.
    """

    def __init__(self, engine: Engine, seed: int, shorts: float) -> None:
        self._engine = engine
        self._rng = random.Random(seed)
        self._shorts = shorts
        self._next_short = float("inf")
        self._num = 0
        self.sent: dict[str, float] = {}
        self.times: defaultdict[str, list[float]] = defaultdict(list)

    def send(self, kind: str, length: int, max_tokens: int) -> str:
        """Send a prompt of random tokens; return its id, which begins with its kind."""
        self._num += 1
        name = f"{kind} {self._num}"
        prompt = [self._rng.randrange(2, VOCAB_SIZE) for _ in range(length)]
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0)
        self.sent[name] = time.perf_counter()
        self._engine.add(Request(id=name, prompt=prompt, sampling=sampling))
        return name

    def run(self, until: Callable[[], bool]) -> None:
        """Run steps until a condition holds."""
        while not until():
            while self._shorts and time.perf_counter() >= self._next_short:
                self.send("short", self._rng.randrange(32, 256), 4)
                self._next_short += self._rng.expovariate(self._shorts)
            for event in self._engine.step():
                if event.token_ids:
                    self.times[event.id].append(time.perf_counter())

    def begin_shorts(self) -> None:
        """Let short prompts come from now on."""
        self._next_short = time.perf_counter() + self._rng.expovariate(self._shorts or 1)

    def end(self) -> None:
        """Abort all that runs."""
        for name in self.sent:
            self._engine.abort(name)
        while self._engine.has_work:
            self._engine.step()

    def gaps(self, since: float) -> list[float]:
        """Return the seconds between tokens of streams, of those that came since then."""
        streams = [times for name, times in self.times.items() if name.startswith("stream")]
        return [b - a for times in streams for a, b in itertools.pairwise(times) if a >= since]

    def first_tokens(self, since: float) -> list[float]:
        """Return the seconds to the first tokens of short prompts sent since then."""
        shorts = [name for name, sent in self.sent.items() if name.startswith("short") and sent >= since]
        return [self.times[name][0] - self.sent[name] for name in shorts if self.times[name]]


def take(engine: Engine, turn: Turn, seed: int, options: argparse.Namespace) -> None:
    """Take one turn."""
    load = Load(engine, seed, turn.shorts)
    streams = [load.send("stream", 64, options.length) for _ in range(options.streams)]
    load.run(lambda: all(len(load.times[name]) > WARM_UP for name in streams))
    begun = time.perf_counter()
    load.begin_shorts()
    load.run(lambda: time.perf_counter() > begun + options.seconds)
    turn.alone, turn.short_alone = load.gaps(begun), load.first_tokens(begun)
    long = load.send("long", options.length, 4)
    load.run(lambda: bool(load.times[long]))
    turn.long_s = load.times[long][0] - load.sent[long]
    turn.beside, turn.short_beside = load.gaps(load.sent[long]), load.first_tokens(load.sent[long])
    load.end()


def prefill_alone(engine: Engine, options: argparse.Namespace) -> float:
    """Return the seconds of the long prompt where nothing else runs."""
    load = Load(engine, 0, 0)
    long = load.send("long", options.length, 4)
    load.run(lambda: bool(load.times[long]))
    load.end()
    return load.times[long][0] - load.sent[long]


def build(folder: Path, stretch: float, options: argparse.Namespace) -> Engine:
    """Return an engine whose model is random and whose memory holds the long prompt and the streams."""
    (folder / "config.json").write_text(json.dumps(MODEL))
    tokens = options.length + options.streams * options.length // 8 + 4096
    return build_generation_engine(
        EngineConfig(
            model=str(folder),
            load_format="dummy",
            device="cpu",
            dtype="float32",
            max_total_tokens=max(tokens, 2 * options.length),
            schedule_conservativeness=0.05,
            prefill_stretch=stretch,
            page_size=options.page_size,
            log_level="warning",
        ),
        load_plugins().registry,
    )


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that so many percent are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def table(turns: list[Turn]) -> str:
    """Return the figures, a column for each kind of turn: medians, with the lowest and highest."""
    kinds = sorted({(turn.shorts, turn.stretch) for turn in turns})
    head = [f"stretch {stretch or 'off'}{', short prompts' if shorts else ''}" for shorts, stretch in kinds]
    figures = {k: [t.figures() for t in turns if (t.shorts, t.stretch) == k] for k in kinds}
    names = dict.fromkeys(name for each in figures.values() for found in each for name in found)
    lines = ["| | " + " | ".join(head) + " |", "|---" * (len(kinds) + 1) + "|"]
    for name in names:
        cells = [spread([found[name] for found in figures[kind] if name in found]) for kind in kinds]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Return median, lowest and highest."""
    if not values:
        return ""
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def machine() -> str:
    """Return the name of the processor (Linux)."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a CPU")


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--turns", type=int, default=3, help="of each kind")
    add("--length", type=int, default=100_000, help="of the long prompt")
    add("--streams", type=int, default=32)
    add("--seconds", type=float, default=20.0, help="of the streams alone, in each turn")
    add("--shorts", type=float, default=0.5, help="short prompts a second, in the turns that have any")
    add("--stretch", type=float, default=1.5)
    add("--page-size", type=int, default=1)
    add("--page", type=Path, help="a page whose table is to be replaced")
    add("--out", type=Path, help="results as JSON")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
    options = parse_arguments()
    turns: list[Turn] = []
    with tempfile.TemporaryDirectory() as folder:
        engines = {stretch: build(Path(folder), stretch, options) for stretch in (options.stretch, 0.0)}
        alone = statistics.mean(prefill_alone(engine, options) for engine in engines.values())
        print(f"{torch.get_num_threads()} threads; the long prompt alone: {alone:.1f} s", flush=True)
        for seed in range(1, options.turns + 1):
            for shorts, stretch in itertools.product((0.0, options.shorts), engines):
                turns.append(Turn(stretch, shorts))
                take(engines[stretch], turns[-1], seed, options)
                print(f"{stretch} {shorts}", turns[-1].figures(), flush=True)
    told = f"{date.today()}, {machine()}, {torch.get_num_threads()} threads; alone, the long prompt takes {alone:.1f} s.\n\n"
    told += table(turns)
    print(told)
    if options.page:
        write_between(options.page, "long prompt", told)
    if options.out:
        found = {"options": vars(options) | {"out": None, "page": None}, "long_alone_s": alone}
        figures = [{"stretch": t.stretch, "shorts": t.shorts} | t.figures() for t in turns]
        options.out.write_text(json.dumps(found | {"turns": figures}, indent=1) + "\n")


WARM_UP = 30  # tokens of each stream, before the first that counts

if __name__ == "__main__":
    main()
