"""OpenAI's completions in front of OpenVINO GenAI's continuous batching. Runs in OpenVINO's own environment.

    python -P openvino_server.py MODEL --port PORT --tokenizer TOKENIZER.json

As much as `llmfw bench` needs: greedy, exact lengths, streamed or whole. One thread runs the pipeline's steps; after each it
hands all new tokens to the event loop at once, and waits without using the CPU while there are no requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai
from aiohttp import web
from tokenizers import Tokenizer


@dataclass
class Running:
    """A request in the pipeline: its handle, and the queue on which its new tokens arrive (None: the end)."""

    handle: Any
    queue: asyncio.Queue[list[int] | None] = field(default_factory=asyncio.Queue)


class Engine:
    """Runs the pipeline in a thread of its own."""

    def __init__(self, pipeline: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._pipeline = pipeline
        self._loop = loop
        self._added = threading.Condition()
        self._running: dict[int, Running] = {}
        self._next = 0
        threading.Thread(target=self._run, daemon=True).start()

    def add(self, ids: list[int], tokens: int) -> Running:
        """Begin a request for exactly so many tokens."""
        config = genai.GenerationConfig()
        config.max_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        prompt = openvino.Tensor(np.array([ids], dtype=np.int64))
        with self._added:
            request = Running(self._pipeline.add_request(self._next, prompt, config))
            self._running[self._next] = request
            self._next += 1
            self._added.notify()
        return request

    def _run(self) -> None:
        while True:
            with self._added:
                while not self._running:
                    self._added.wait()
                running = list(self._running.items())
            if self._pipeline.has_non_finished_requests():
                self._pipeline.step()
            news: list[tuple[Running, list[int] | None]] = []
            ended = []
            for number, request in running:
                if request.handle.can_read():
                    for output in request.handle.read().values():
                        news.append((request, list(output.generated_ids)))
                elif request.handle.get_status() != genai.GenerationStatus.RUNNING:
                    news.append((request, None))
                    ended.append(number)
            with self._added:
                for number in ended:
                    del self._running[number]
            if news:
                self._loop.call_soon_threadsafe(_hand_out, news)


def _hand_out(news: list[tuple[Running, list[int] | None]]) -> None:
    for request, ids in news:
        request.queue.put_nowait(ids)


class Routes:
    """What the server answers."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer

    async def models(self, _: web.Request) -> web.Response:
        """List the one model."""
        return web.json_response({"object": "list", "data": [{"id": "model", "object": "model"}]})

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Complete a prompt of text or ids."""
        body = await request.json()
        prompt = body["prompt"]
        ids = (
            self._tokenizer.encode(prompt, add_special_tokens=False).ids
            if isinstance(prompt, str)
            else prompt
        )
        running = self._engine.add(ids, body["max_tokens"])
        if not body.get("stream"):
            made: list[int] = []
            while (new := await running.queue.get()) is not None:
                made += new
            choice = {"index": 0, "text": self._tokenizer.decode(made), "finish_reason": "length"}
            return web.json_response({"choices": [choice], "usage": _usage(ids, len(made))})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        count = 0
        while (new := await running.queue.get()) is not None:
            count += len(new)
            await _send(response, {"choices": [{"index": 0, "text": self._tokenizer.decode(new)}]})
        await _send(response, {"choices": [], "usage": _usage(ids, count)})
        await response.write(b"data: [DONE]\n\n")
        return response


def _usage(ids: list[int], made: int) -> dict[str, int]:
    return {"prompt_tokens": len(ids), "completion_tokens": made, "total_tokens": len(ids) + made}


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


def pipeline(options: argparse.Namespace) -> Any:
    """Load the model."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = options.cache_gb
    scheduler.max_num_batched_tokens = 2048
    scheduler.max_num_seqs = 128
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = True
    properties: dict[str, Any] = {"INFERENCE_NUM_THREADS": os.cpu_count()}
    if options.precision:
        properties["INFERENCE_PRECISION_HINT"] = options.precision
    return genai.ContinuousBatchingPipeline(str(options.model), scheduler, "CPU", properties)


async def serve(options: argparse.Namespace) -> None:
    """Serve until the process is ended."""
    loaded = pipeline(options)
    routes = Routes(Engine(loaded, asyncio.get_running_loop()), Tokenizer.from_file(str(options.tokenizer)))
    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.get("/v1/models", routes.models), web.post("/v1/completions", routes.completions)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", options.port).start()
    await asyncio.Event().wait()


def main() -> None:
    """Read the options, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--cache-gb", type=int, default=1)
    parser.add_argument("--precision", help="f32, bf16 or f16 [default: OpenVINO's choice for this CPU]")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
