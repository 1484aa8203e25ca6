"""Files of API keys are followed while the server runs, and what cannot be read changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llmfw.api.access import key_file
from llmfw.api.access.key_file import read_keys
from llmfw.api.access.key_table import ADMIN
from llmfw.api.access.keyring import Keyring
from llmfw.api.access.principals import Known
from llmfw.api.server import file_watch as module
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import ConfigError


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    monkeypatch.setattr(module, "SETTLE_S", 0.01)


def config_of(**fields: Any) -> ServerConfig:
    return ServerConfig(served_model_name="m", **fields)


def write(path: Path, text: str) -> str:
    """Write a file at once."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    os.replace(new, path)
    return str(path)


@asynccontextmanager
async def followed(config: ServerConfig) -> AsyncIterator[Keyring]:
    keys = Keyring(config)
    keys.start()
    yield keys
    await keys.close()


async def becomes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    config = config_of(api_key=(("eve", "three"),), api_key_file=write(path, "ann=one\n"))
    async with followed(config) as keys:
        write(path, "ann=two\nbob=four\n")
        await becomes(lambda: keys.tenant_of(b"two") == "ann")
        assert keys.tenant_of(b"one") is None
        assert (keys.tenant_of(b"three"), keys.tenant_of(b"four")) == ("eve", "bob")
        path.write_text("ann=two\nbob=five\n")  # in place, of the same size
        await becomes(lambda: keys.tenant_of(b"five") == "bob")


async def test_a_file_is_read_again_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 60)
    caplog.set_level("INFO")
    async with followed(config_of(api_key_file=write(tmp_path / "keys", "ann=one\n"))) as keys:
        keys.read_again()
        await becomes(lambda: "Read the API keys again; tenants: 1" in caplog.text)
    Keyring(config_of()).read_again()
    assert "There is no file of API keys to read again" in caplog.text


async def test_the_admin_s_file_is_followed_too(tmp_path: Path) -> None:
    path = tmp_path / "admin"
    async with followed(config_of(admin_api_key_file=write(path, "root\n"))) as keys:
        assert (keys.has_keys, keys.has_admin, keys.tenant_of(b"root")) == (False, True, ADMIN)
        write(path, "toor\n")
        await becomes(lambda: keys.tenant_of(b"toor") == ADMIN)
        assert keys.tenant_of(b"root") is None


@pytest.mark.parametrize(
    "wrong", ["", "ann=new\nnonsense\n", "ann=new\nbob=root\n", "ann=new scopes=all\n", None]
)
async def test_a_broken_key_file_keeps_the_old_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str | None
) -> None:
    path = tmp_path / "keys"
    config = config_of(admin_api_key="root", api_key_file=write(path, "ann=one\n"))
    async with followed(config) as keys:
        write(path, wrong) if wrong is not None else path.unlink()
        await becomes(lambda: "stay as they were" in caplog.text)
        await asyncio.sleep(0.1)
        assert caplog.text.count("stay as they were") == 1
        assert (keys.tenant_of(b"one"), keys.tenant_of(b"new"), keys.tenant_of(b"root")) == (
            "ann",
            None,
            ADMIN,
        )
        write(path, "ann=two\n")
        await becomes(lambda: keys.tenant_of(b"two") == "ann")


async def test_a_changed_file_changes_scopes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    config = config_of(admin_api_key="root", api_key_file=write(path, "ann=one scopes=models\n"))
    async with followed(config) as keys:
        assert keys.client_of(b"one") == Known("ann", frozenset({"models"}))
        write(path, "ann=one scopes=embed\n")
        await becomes(lambda: keys.client_of(b"one") == Known("ann", frozenset({"embed"})))
        write(path, "ann=one\n")
        await becomes(lambda: keys.client_of(b"one") == Known("ann"))


@pytest.mark.parametrize("text", ["ann=one scopes=models\n", "ann=one\nann=two scopes=models\n"])
def test_an_administrators_key_has_no_scopes(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "keys", text)
    with pytest.raises(
        ConfigError, match=r"'ann' has scopes, .*; add an admin key with --admin-api-key-file"
    ):
        Keyring(config_of(api_key_file=path))
    with pytest.raises(ConfigError, match="'ann' has scopes"):
        Keyring(config_of(api_key_file=path, api_key=(("ann", "three"),)))
    for more in ({"admin_api_key": "root"}, {"api_key": (("bob", "four"),)}, {"authenticators": "words"}):
        keys = Keyring(config_of(api_key_file=path, **more))
        assert not any(keys.is_admin("ann", scopes) for scopes in (None, frozenset({"models"})))


async def test_losing_other_tenants_keeps_the_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    text = "ann=one scopes=models\n"
    async with followed(config_of(api_key_file=write(path, f"{text}bob=two\n"))) as keys:
        write(path, text)
        await becomes(lambda: "stay as they were: a key of tenant 'ann' has scopes" in caplog.text)
        assert keys.tenant_of(b"two") == "bob"
        write(path, "ann=three\n")
        await becomes(lambda: keys.tenant_of(b"three") == "ann")
        assert keys.is_admin("ann", None)
        assert not keys.is_admin("ann", frozenset({"models"})), "a request that still runs gains nothing"


async def test_a_pipe_replacing_the_file_blocks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "keys"
    async with followed(config_of(api_key_file=write(path, "ann=one\n"))) as keys:
        path.unlink()
        os.mkfifo(path)
        await becomes(lambda: "is not a regular file" in caplog.text)
        path.unlink()
        write(path, "bob=two\n")
        await becomes(lambda: keys.tenant_of(b"two") == "bob")
        assert keys.tenant_of(b"one") is None


def test_a_pipe_without_a_writer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "PIPE_S", 0.05)
    path = tmp_path / "keys"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="is a pipe that was not written and closed"):
        read_keys(path, named=True)


def test_keys_may_come_from_a_slow_pipe() -> None:
    end, start = os.pipe()
    with os.fdopen(start, "w") as file, ThreadPoolExecutor(1) as pool:
        found = pool.submit(read_keys, Path(f"/dev/fd/{end}"), named=True)
        file.write(f"ann={'k' * 32}\n")
        file.flush()
        file.close()
        assert [key.tenant for key in found.result().keys] == ["ann"]
    os.close(end)


async def test_a_file_being_written_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    async with followed(config_of(api_key_file=write(path, "ann=one\nbob=two\n"))) as keys:
        for _ in range(30):
            path.write_text("ann=one\n")  # a part, which would do without bob
            path.write_text("ann=one\nbob=two\n")
            assert keys.tenant_of(b"two") == "bob"
            await asyncio.sleep(0.003)
            assert keys.tenant_of(b"two") == "bob"


def test_a_wrong_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no API key"):
        Keyring(config_of(api_key_file=write(tmp_path / "keys", "\n")))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Keyring(config_of(admin_api_key_file=str(tmp_path / "none")))
