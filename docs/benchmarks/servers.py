"""The servers that are compared: how each is started, what it is asked, what CPU time it has used."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

KV_TOKENS = 32_768  # the same room for keys and values in both
KV_BLOCK = 32
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass
class Server:
    """A server and the options with which `llmfw bench` drives it.

    Attributes:
        name: as it is called in the results.
        command: to start it; `{folder}` and `{port}` are replaced.
        bench: further arguments of `llmfw bench`.
        model_name: what it calls the model, `{folder}` replaced; empty: it is asked.
        environment: variables for it, besides those that all servers get.
        model, port, process: set by `start`.
    """

    name: str
    command: list[str]
    bench: list[str] = field(default_factory=list)
    model_name: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    model: str = ""
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def describe(self) -> str:
        """Return the command without the folder that it is installed in."""
        return " ".join([Path(self.command[0]).name, *self.command[1:]])

    def start(self, folder: Path, log: IO[bytes], limit: float = 300.0) -> float:
        """Start it on a free port and wait for its first token.

        Args:
            folder: of the model.
            log: receives what it prints.
            limit: seconds to wait.

        Returns:
            Seconds until the first token.

        Raises:
            RuntimeError: it ended, or was not ready within the limit.
        """
        self.port = free_port()
        self.model = self.model_name.format(folder=folder)
        command = [part.format(folder=folder, port=self.port) for part in self.command]
        begun = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | ENVIRONMENT | self.environment,
            start_new_session=True,
        )
        while not self.answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}; see {log.name}")
            if time.monotonic() - begun > limit:
                raise RuntimeError(f"{self.name} was not ready after {limit:.0f} s; see {log.name}")
            time.sleep(0.1)
        return time.monotonic() - begun

    def answers(self) -> bool:
        """Whether it generates a token."""
        try:
            self.complete("a", tokens=1)
        except (OSError, LookupError, ValueError):
            return False
        return True

    def complete(self, prompt: str, tokens: int) -> str:
        """Return the greedy text of at most so many tokens that follows a prompt.

        Raises:
            OSError, LookupError, ValueError: it cannot be reached, or answers something else.
        """
        model = self.model or get_json(f"{self.url}/v1/models")["data"][0]["id"]
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0}
        return str(get_json(f"{self.url}/v1/completions", body)["choices"][0]["text"])

    def cpu_seconds(self) -> float:
        """Return the CPU time that its processes have used so far."""
        return session_cpu_seconds(self.process.pid) if self.process else 0.0

    def stop(self) -> None:
        """End all its processes."""
        if self.process is None:
            return
        for which, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
            try:
                os.killpg(self.process.pid, which)
                self.process.wait(patience)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.process = None


def llmfw(executable: Path) -> Server:
    """Return llmfw as a user starts it, with the size of its KV storage given."""
    command = [str(executable), "serve", "{folder}", "--port", "{port}", "--dtype", "bfloat16"]
    return Server("llmfw", [*command, "--max-total-tokens", str(KV_TOKENS)])


def transformers_serve(executable: Path) -> Server:
    """Return `transformers serve` with continuous batching, in the best settings found for it (see the page).

    It knows no `ignore_eos`; the request's own generation config switches the end-of-sequence token off instead.
    """
    command = [str(executable), "serve", "{folder}", "--host", "127.0.0.1", "--port", "{port}"]
    command += ["--device", "cpu", "--dtype", "bfloat16", "--continuous-batching"]
    command += ["--cb-block-size", str(KV_BLOCK), "--cb-num-blocks", str(KV_TOKENS // KV_BLOCK)]
    command += ["--cb-max-batch-tokens", "256", "--attn-implementation", "eager"]
    no_end = {"generation_config": json.dumps({"eos_token_id": -1, "do_sample": False})}
    return Server("transformers serve", command, ["--extra-body", json.dumps(no_end)], model_name="{folder}")


def free_port() -> int:
    """Return a TCP port that nothing listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def get_json(url: str, body: dict[str, Any] | None = None, timeout: float = 120.0) -> dict[str, Any]:
    """Return a server's JSON answer; with a body, to a POST of it. Timeout in seconds."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return dict(json.load(answer))


def session_cpu_seconds(session: int) -> float:
    """Return the CPU seconds of all processes of a session, their ended children included (Linux)."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in session_processes(session).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def session_processes(session: int) -> dict[int, list[str]]:
    """Return the processes of a session, by id: what the system says of them from their state on (Linux)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[3]) == session:
            found[int(entry.name)] = fields
    return found


def machine_cpu_seconds() -> tuple[float, float]:
    """Return the CPU seconds that the machine has used and had since it started (Linux)."""
    fields = [int(f) for f in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    tick = os.sysconf("SC_CLK_TCK")
    return (sum(fields) - idle) / tick, sum(fields) / tick
