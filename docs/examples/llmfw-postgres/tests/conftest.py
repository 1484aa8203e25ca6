"""A PostgreSQL server of the tests' own: on a socket in a folder of its own, gone when they end."""

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

STARTS_IN_S = 60


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The URL of an empty database: LLMFW_TEST_POSTGRES, or one on a server that is started for the tests."""
    given = os.environ.get("LLMFW_TEST_POSTGRES")
    if given:
        yield given
        return
    programs = _programs()
    if programs is None:
        reason = "there is no PostgreSQL server: no initdb on the PATH or in /usr/lib/postgresql/*/bin"
        if os.environ.get("LLMFW_REQUIRE_POSTGRES"):
            pytest.fail(reason)
        pytest.skip(f"{reason}; install one, or name a database by LLMFW_TEST_POSTGRES=postgresql://…")
    folder = tempfile.mkdtemp(prefix="pg-", dir="/tmp")  # a socket's path has to be short
    try:
        yield from _serving(programs, Path(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    """Return the folder with the server's programs: those on the PATH, else the newest."""
    installed = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda path: (len(path), path))
    for path in (shutil.which("initdb"), *reversed(installed)):
        if path and (folder := Path(path).resolve().parent).joinpath("postgres").exists():
            return folder
    return None


def _serving(programs: Path, folder: Path) -> Iterator[str]:
    owner = {}
    if os.getuid() == 0:  # which PostgreSQL refuses to run as
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        owner = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = folder / "data"
    init = [programs / "initdb", "-D", data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, cwd=folder, **owner)
    settings = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *options], stdout=log, stderr=log, cwd=folder, **owner
        )
    try:
        url = f"postgresql://tests@/postgres?host={folder}"
        _wait_for(server, url, folder / "log")
        yield url
    finally:
        server.send_signal(signal.SIGINT)  # disconnects whoever is left
        server.wait(STARTS_IN_S)


def _wait_for(server: subprocess.Popen, url: str, log: Path) -> None:
    until = time.monotonic() + STARTS_IN_S
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > until:
                pytest.fail(f"PostgreSQL did not start: {log.read_text()}")
            time.sleep(0.1)
