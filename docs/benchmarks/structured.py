"""Counts what becomes of JSON schemas: valid JSON, refused with a reason, or anything else.

    python docs/benchmarks/structured.py SCHEMAS.jsonl                             (no model: random allowed tokens)
    python docs/benchmarks/structured.py SCHEMAS.jsonl --url http://localhost:30000

A line of the file is {"schema": …} or a schema. The random walk chooses each token evenly among those allowed, which
judges a grammar harder than any model; after half of the tokens it goes for the end where it can. Each reply is
checked by the package `jsonschema` against the schema as it stands in the file.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
from jsonschema.validators import validator_for

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import GrammarBackend
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

VALID, REFUSED, CUT = "valid", "refused", "cut by length"
CLOSED = "valid, brought to its end before max_tokens"


def read_schemas(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield names and schemas."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        record = json.loads(line)
        bare = not (isinstance(record, dict) and "schema" in record)
        yield (f"line {number}", record) if bare else (record.get("name", f"line {number}"), record["schema"])


def verdict(schema: Any, text: str) -> str:
    """Return `VALID`, or what is wrong with a reply."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    checker = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        checker(schema).validate(value)
    except jsonschema.ValidationError as error:
        return f"invalid: {error.validator} {str(error.message)[:200]}"
    return VALID


class Walker:
    """Writes JSON without a model.

    Args:
        seconds: mask times are added to it.
    """

    def __init__(self, backend: GrammarBackend, tokenizer: Tokenizer, vocab_size: int, limit: int) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._limit = limit
        self._masks = np.zeros((1, (vocab_size + 31) // 32), np.int32)
        self._lengths = [len(tokenizer.decode([i])) for i in range(vocab_size)]
        self.seconds: list[float] = []

    def reply(self, schema: Any, seed: int) -> tuple[str, bool]:
        """Return a text, and whether it came to its end."""
        grammar = self._backend.compile(GrammarSpec("json_schema", json.dumps(schema))).copy()
        draw = random.Random(seed)
        tokens: list[int] = []
        while len(tokens) < self._limit:
            start = time.perf_counter()
            self._backend.fill_masks([grammar], self._masks)
            self.seconds.append(time.perf_counter() - start)
            allowed = np.flatnonzero(np.unpackbits(self._masks.view(np.uint8), bitorder="little")).tolist()
            token = self._choose(allowed, draw, hurry=len(tokens) > self._limit // 2)
            grammar.accept(token)
            if token in self._tokenizer.eos_token_ids:
                return self._tokenizer.decode(tokens, skip_special_tokens=False), True
            tokens.append(token)
        return self._tokenizer.decode(tokens, skip_special_tokens=False), False

    def _choose(self, allowed: list[int], draw: random.Random, *, hurry: bool) -> int:
        ends = [token for token in allowed if token in self._tokenizer.eos_token_ids]
        if ends and (hurry or draw.random() < 0.5):
            return ends[0]
        if hurry:
            closing = [
                token for token in allowed if self._tokenizer.decode([token]) in ('"', "}", "]", '"}', "}}")
            ]
            if closing and draw.random() < 0.9:
                return draw.choice(closing)
        return draw.choice(allowed)


def walk(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield each schema's name and outcome, without a model."""
    registry = load_plugins().registry
    tokenizer = load_tokenizer(resolve_model(args.model, registry).path, "auto")
    entry = registry.find("grammar", args.grammar) if args.grammar else registry.entries("grammar")[0]
    vocab_size = max(tokenizer.added_tokens().values(), default=0) + 1 + args.extra
    walker = Walker(entry.load()(tokenizer, vocab_size), tokenizer, vocab_size, args.max_tokens)
    for name, schema in read_schemas(args.schemas):
        for seed in range(args.repeat):
            yield name, _walk_one(walker, schema, seed)
    _print_times(walker.seconds)


def _walk_one(walker: Walker, schema: Any, seed: int) -> str:
    start = time.perf_counter()
    try:
        text, ended = walker.reply(schema, seed)
    except RequestError as error:
        return f"{REFUSED}: {error}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return f"failed: {type(error).__name__}: {error}"
    if time.perf_counter() - start > 60:
        return "slow: more than a minute"
    return verdict(schema, text) if ended else CUT


def ask(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yield each schema's name and outcome, from a running server."""

    async def all_of_them() -> list[tuple[str, str]]:
        room = asyncio.Semaphore(args.concurrency)
        async with httpx.AsyncClient(base_url=args.url, timeout=600) as client:
            jobs = [
                _ask_one(client, room, name, schema, args)
                for name, schema in read_schemas(args.schemas)
                for _ in range(args.repeat)
            ]
            return list(await asyncio.gather(*jobs))

    yield from asyncio.run(all_of_them())


async def _ask_one(
    client: httpx.AsyncClient, room: asyncio.Semaphore, name: str, schema: Any, args: argparse.Namespace
) -> tuple[str, str]:
    body = {
        "messages": [{"role": "user", "content": "Write an example of JSON that fits the schema."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}},
        "temperature": 1,
        "max_tokens": args.max_tokens,
    }
    async with room:
        try:
            response = await client.post("/v1/chat/completions", json=body)
        except httpx.HTTPError as error:
            return name, f"failed: {type(error).__name__}"
    reply = response.json()
    if response.status_code == 400:
        return name, f"{REFUSED}: {reply['error']['message']}"
    if response.status_code != 200:
        return name, f"failed: status {response.status_code}"
    choice = reply["choices"][0]
    found = verdict(schema, choice["message"]["content"] or "")
    if choice["finish_reason"] == "length":
        return name, CLOSED if found == VALID else CUT
    return name, found


def _print_times(seconds: list[float]) -> None:
    if seconds:
        p50, p99 = np.percentile(seconds, [50, 99]) * 1e6
        print(f"mask time per token: p50 {p50:.0f} µs, p99 {p99:.0f} µs, max {max(seconds) * 1e3:.1f} ms")


def main() -> None:
    """Print the counts, the reasons of refusals, and all other outcomes one by one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("schemas", type=Path)
    parser.add_argument("--url", help="a running server; without it, no model is used")
    parser.add_argument("--model", default="demo", help="whose tokenizer to walk with")
    parser.add_argument("--grammar", help="name of the backend; default: the best one installed")
    parser.add_argument(
        "--extra", type=int, default=24, help="logits beyond the tokenizer's tokens, for the walk"
    )
    parser.add_argument("--max-tokens", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=1, help="replies for each schema")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for name, outcome in ask(args) if args.url else walk(args):
        kind = outcome.partition(":")[0]
        counts[kind if kind in (VALID, CLOSED, REFUSED, CUT) else "anything else"] += 1
        if kind == REFUSED:
            reasons[re.sub(r"'#[^']*'", "'#…'", outcome.removeprefix(f"{REFUSED}: "))[:100]] += 1
        elif kind not in (VALID, CLOSED, CUT):
            print(f"{name}: {outcome}")
    print("\n".join(f"{count:6d}  {kind}" for kind, count in counts.most_common()))
    print("\n".join(f"{count:6d}  {reason}" for reason, count in reasons.most_common()))


if __name__ == "__main__":
    main()
