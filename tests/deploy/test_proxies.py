"""nginx and Caddy with the example configurations pass streams on at once, and tell the client's address."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from ..crash.server import free_port, wait_until
from ..doubles.certificates import needs_openssl, write_certificate
from ..doubles.scripted_server import STOPS_WITHIN_S
from .command_line import FOLDER, settings_of

NGINX = (FOLDER / "proxy" / "nginx.conf").read_text()
CADDY = (FOLDER / "proxy" / "Caddyfile").read_text()

needs_nginx = pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
needs_caddy = pytest.mark.skipif(shutil.which("caddy") is None, reason="caddy is not installed")


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    """Return a text with replacements, each of which must be possible."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


class Upstream(ThreadingHTTPServer):
    """A server in llmfw's place: one event of its stream is the request's headers, the next comes once `go` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), StreamingHandler)
        self.go = threading.Event()


class StreamingHandler(BaseHTTPRequestHandler):
    server: Upstream

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.wfile.write(f"data: {json.dumps(headers)}\n\n".encode())
        self.wfile.flush()
        self.server.go.wait(60)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(STOPS_WITHIN_S,))
        thread.start()
        try:
            yield server
        finally:
            server.go.set()
            server.shutdown()
            thread.join()


@contextmanager
def running(command: list[str], port: int, folder: Path) -> Iterator[str]:
    """Run a proxy until the block ends; yield its URL."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        wait_until(lambda: is_open(port) or process.poll() is not None, 60, "the start of the proxy")
        assert process.poll() is None, (folder / "log").read_text()
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def nginx(folder: Path, port: int, upstream_port: int) -> list[str]:
    """Write a configuration of nginx that includes the example; return the command to run it."""
    write_certificate(folder)
    example = replaced(
        NGINX,
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        ("127.0.0.1:30000", f"127.0.0.1:{upstream_port}"),
        ("/etc/ssl/llm.example.com/fullchain.pem", f"{folder}/cert.pem"),
        ("/etc/ssl/llm.example.com/privkey.pem", f"{folder}/key.pem"),
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}} http {{ access_log off; {paths} {example} }}"
    )
    return ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]


def caddy(folder: Path, port: int, upstream_port: int) -> list[str]:
    """Write the example for another address and certificate; return the command to run it."""
    cert, key = write_certificate(folder)
    example = replaced(
        CADDY,
        ("llm.example.com {", f"https://127.0.0.1:{port} {{\n\ttls {cert} {key}"),
        ("127.0.0.1:30000", f"127.0.0.1:{upstream_port}"),
    )
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n\tstorage file_system " + str(folder) + "\n}\n"
    (folder / "Caddyfile").write_text(options + example)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


def passes_streams_and_addresses(
    proxy: Callable[[Path, int, int], list[str]], upstream: Upstream, folder: Path
) -> None:
    """Check that the first event arrives while the upstream holds the second, with headers that llmfw reads."""
    port = free_port()
    with (
        running(proxy(folder, port, upstream.server_port), port, folder) as url,
        httpx.Client(verify=False, trust_env=False, timeout=20) as client,
    ):
        sent = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "http"}
        with client.stream("GET", f"{url}/v1/models", headers=sent) as reply:
            lines = reply.iter_lines()
            headers = json.loads(next(lines).removeprefix("data: "))
            upstream.go.set()
            assert [line for line in lines if line] == ["data: [DONE]"]
        # The last address is the one that the proxy has seen, whatever the client says.
        assert headers["x-forwarded-for"].split(", ")[-1] == "127.0.0.1"
        assert headers["x-forwarded-proto"] == "https"
        assert headers["host"].startswith("127.0.0.1")
        for path in ("/admin", "/admin/cache", "/metrics"):
            assert client.get(url + path).status_code == 404


@needs_nginx
@needs_openssl
def test_nginx_passes_streams_and_addresses(upstream: Upstream, tmp_path: Path) -> None:
    command = nginx(tmp_path, free_port(), upstream.server_port)
    subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=60)
    passes_streams_and_addresses(nginx, upstream, tmp_path)


@needs_caddy
@needs_openssl
def test_caddy_passes_streams_and_addresses(upstream: Upstream, tmp_path: Path) -> None:
    passes_streams_and_addresses(caddy, upstream, tmp_path)


def test_proxies_ask_the_default_address() -> None:
    settings = settings_of(["serve"])
    address = f"{settings['host']}:{settings['port']}"
    assert f"server {address};" in NGINX
    assert f"reverse_proxy {address} " in CADDY


def test_proxies_close_idle_connections_first() -> None:
    idle_timeout = settings_of(["serve"])["idle_timeout"]
    assert "keepalive_timeout 60s;" in NGINX
    assert "keepalive 60s\n" in CADDY
    assert idle_timeout > 60
