"""A certificate is read again when its files change, and one that is wrong changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.server import file_watch
from llmfw.api.server.tls import Certificate, certificate_of
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError

from ...doubles.certificates import needs_openssl, write_certificate

pytestmark = needs_openssl


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "LOOK_S", 0.02)
    monkeypatch.setattr(file_watch, "SETTLE_S", 0.01)


@contextlib.asynccontextmanager
async def listening(certificate: Certificate) -> AsyncIterator[int]:
    """Accept TLS connections, and yield the port."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=certificate.context)
    certificate.start()
    async with server:
        yield server.sockets[0].getsockname()[1]
    await certificate.close()


async def presented(port: int) -> bytes:
    """Return the certificate that a server presents, in the form of PEM files."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: Any = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return ssl.DER_cert_to_PEM_cert(found).encode()


async def test_new_connections_use_a_changed_certificate(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    async with listening(Certificate(cert, key)) as port:
        assert await presented(port) == cert.read_bytes()
        write_certificate(tmp_path)
        async with asyncio.timeout(20):
            while await presented(port) != cert.read_bytes():
                await asyncio.sleep(0.02)


async def test_a_wrong_certificate_changes_nothing(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    old = cert.read_bytes()
    certificate = Certificate(cert, key)
    async with listening(certificate) as port:
        (tmp_path / "other").mkdir()
        os.replace(write_certificate(tmp_path / "other")[1], key)  # the key of another certificate
        with pytest.raises(ConfigError, match="KEY_VALUES_MISMATCH; both must be PEM files"):
            await certificate.reload()
        assert await presented(port) == old


def test_one_file_may_have_certificate_and_key(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    cert.write_bytes(cert.read_bytes() + key.read_bytes())
    assert certificate_of(ServerConfig(served_model_name="m", tls_cert=str(cert))) is not None
    assert certificate_of(ServerConfig(served_model_name="m")) is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tls_key": "key.pem"}, "--tls-key is 'key.pem', without --tls-cert"),
        ({"tls_cert": "none.pem"}, "'none.pem' is not a file"),
        ({"tls_cert": "cert.pem"}, "the certificate 'cert.pem' cannot be used"),
        ({"tls_cert": "cert.pem", "tls_key": "locked.pem"}, "cannot be used: .*not encrypted"),
        ({"tls_cert": "key.pem", "tls_key": "cert.pem"}, "the key 'cert.pem' cannot be used"),
    ],
)
def test_wrong_files_are_refused_by_name(
    fields: dict[str, str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_certificate(tmp_path)
    command = "openssl ec -in key.pem -aes256 -passout pass:secret -out locked.pem"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=60)
    with pytest.raises(ConfigError, match=problem):
        certificate_of(ServerConfig(served_model_name="m", **fields))
