"""A whole server on a Unix socket, with TLS, and files that it reads again while it runs."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmfw.api.app.listen import listening
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError

from ...doubles import serve_echo
from ...doubles.certificates import needs_openssl, write_certificate
from ...doubles.serving import wait_until
from .test_serve import MODEL, READY, Process, run, running

RELOADED = "Read the certificate and key again; new connections use them"
CHAT = {"model": "tiny", "prompt": "abc", "max_tokens": 3}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder


def serving(model: Path, *options: str) -> tuple[str, ...]:
    return (sys.executable, serve_echo.__file__, str(model), *options)


def test_a_unix_socket_takes_requests_and_goes(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "llmfw.sock"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    with running(*serving(model, "--uds", str(path), "--port", "30000")) as process:
        process.wait_for(READY)
        process.wait_for(f"curl --unix-socket {path} http://localhost/v1/")
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as http:
            assert http.post("/v1/completions", json=CHAT).json()["choices"][0]["text"] == "abc"
            assert http.get("/admin/policy").status_code == 200
            forwarded = {"x-forwarded-for": "10.0.0.9"}
            assert http.get("/admin/policy", headers=forwarded).status_code == 403
        assert process.end(signal.SIGTERM) == 0
    assert not path.exists()


def test_two_starting_servers_do_not_share_a_path(tmp_path: Path) -> None:
    """A bound socket refuses connections until its server listens, as a stale one does."""
    config = ServerConfig(served_model_name="m", uds=str(tmp_path / "llmfw.sock"))
    with listening(config):
        with pytest.raises(ConfigError, match="another server has it"), listening(config):
            pass
        assert (tmp_path / "llmfw.sock").exists()
    assert list(tmp_path.iterdir()) == []


def test_a_path_in_use_fails_before_loading(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "llmfw.sock"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(path))
        taken.listen()
        done = run(str(model), "--load-format", "dummy", "--uds", str(path))
    assert done.returncode == 1
    assert f"cannot listen on '{path}': Address already in use" in done.stderr
    assert path.exists()
    done = run(str(model), "--load-format", "dummy", "--uds", str(path), "--port", "1")
    assert f"--uds is '{path}', and --port is 1; give one of them" in done.stderr


@pytest.fixture
def secure(model: Path, tmp_path: Path) -> Iterator[Process]:
    """A server with TLS and a file of keys."""
    cert, key = write_certificate(tmp_path)
    keys = tmp_path / "keys.txt"
    keys.write_text("ann=one\n")
    files = ("--tls-cert", str(cert), "--tls-key", str(key), "--api-key-file", str(keys))
    with running(*serving(model, *files)) as process:
        process.wait_for(READY)
        yield process


def url_of(process: Process) -> str:
    found = re.search(r"running on (https://\S+)", process.log)
    assert found, process.log
    return found[1]


@needs_openssl
def test_tls_files_are_read_again(secure: Process, tmp_path: Path) -> None:
    url, headers = url_of(secure), {"authorization": "Bearer one"}

    def client() -> httpx.Client:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        return httpx.Client(base_url=url, headers=headers, verify=trusted, timeout=20)

    with client() as old:
        assert old.post("/v1/completions", json=CHAT).json()["choices"][0]["text"] == "abc"
        assert old.post("/admin/reload").json() == {"reloaded": ["API keys", "certificate and key"]}
        write_certificate(tmp_path)
        assert old.post("/admin/reload", json={"log_level": "warning"}).json()["log_level"] == "warning"
        assert old.get("/health").status_code == 200  # the old connection goes on
    with client() as new:
        assert new.post("/admin/reload", json={"log_level": "info"}).status_code == 200
        write_certificate(tmp_path)
        num_reloads = secure.log.count(RELOADED)
        secure.popen.send_signal(signal.SIGHUP)
        wait_until(lambda: secure.log.count(RELOADED) > num_reloads)
    with client() as new:
        (tmp_path / "key.pem").write_text("no key")
        refused = new.post("/admin/reload", json={"log_level": "loud"})
        assert refused.json()["error"]["message"].startswith("log_level is 'loud'; it must be one of debug,")
        refused = new.post("/admin/reload")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "reload_failed")
        assert "certificate and key stay as they were" in refused.json()["error"]["message"]
    with client() as new:
        assert new.get("/health").status_code == 200
    assert secure.end(signal.SIGTERM) == 0
    assert "Traceback" not in secure.log
