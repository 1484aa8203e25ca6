"""The systemd unit fits llmfw's options, its exit codes and the way that it ends."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .command_line import DRAIN_MARGIN_S, FOLDER, seconds, settings_of

UNIT = FOLDER / "systemd" / "llmfw.service"
PROGRAM = "/opt/llmfw/bin/llmfw"
SPECIFIERS = {"%d": "/run/credentials/llmfw.service", "%S": "/var/lib", "%C": "/var/cache"}

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def service() -> configparser.SectionProxy:
    """Return the section Service; of a key that is there several times, the last one."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(UNIT)
    return parser["Service"]


def all_of(key: str) -> list[str]:
    """Return the values of a key that may be there several times, with systemd's specifiers replaced."""
    found = re.findall(rf"^{key}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return [re.sub("%[dSC]", lambda match: SPECIFIERS[match[0]], value) for value in found]


def environment() -> dict[str, str]:
    words = [word for line in all_of("Environment") for word in shlex.split(line)]
    return dict(word.split("=", 1) for word in words)


def test_the_command_reads_the_credentials() -> None:
    [command] = all_of("ExecStart")
    program, *words = shlex.split(command)
    assert program == PROGRAM
    settings = settings_of(words, environment())
    names = [credential.partition(":")[0] for credential in all_of("LoadCredential")]
    paths = [f"{SPECIFIERS['%d']}/{name}" for name in names]
    assert [settings["api_key_file"], settings["admin_api_key_file"]] == paths


def test_the_command_writes_to_folders_of_its_own() -> None:
    [command] = all_of("ExecStart")
    settings, values = settings_of(shlex.split(command)[1:], environment()), environment()
    assert service()["ProtectSystem"] == "strict"
    assert settings["storage"] == f"/var/lib/{service()['StateDirectory']}"
    cache = f"/var/cache/{service()['CacheDirectory']}"
    assert f"{values['XDG_CACHE_HOME']}/llmfw" == cache
    assert values["HF_HOME"].startswith(cache)


def test_a_start_takes_what_it_takes() -> None:
    assert (service()["Type"], service()["TimeoutStartSec"]) == ("notify", "infinity")
    assert seconds(service()["WatchdogSec"]) >= 30  # the event loop pauses for less


def test_the_end_leaves_time_to_drain() -> None:
    [command] = all_of("ExecStart")
    settings = settings_of(shlex.split(command)[1:], environment())
    assert service()["KillMode"] == "mixed"
    assert seconds(service()["TimeoutStopSec"]) >= settings["drain_timeout"] + DRAIN_MARGIN_S


def test_restarts_follow_the_table_of_exit_codes() -> None:
    """Codes that the page says to restart after are failures for systemd, and not excepted; the others are excepted."""
    page = (FOLDER.parent / "operations.md").read_text()
    table = page.partition("\n### Exit codes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]*\d[^|]*) \|[^|]*\| ([^|]+) \|$", table, re.MULTILINE)
    answers = {code: answer for codes, answer in rows for code in re.findall(r"\d+", codes)}
    assert answers["70"] == answers["137"] == "yes"
    assert service()["Restart"] == "on-failure"
    excepted = service()["RestartPreventExitStatus"].split()
    clean = {"0", "143", "129"}  # for systemd: code 0, SIGTERM and SIGHUP
    assert {code for code, answer in answers.items() if answer != "yes"} == clean | set(excepted)


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    done = analyze(tmp_path, "verify", "--man=no")
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_the_unit_is_hardened(tmp_path: Path) -> None:
    """systemd gives an exposure of 10 to a service without any limit, and calls one below 2 OK."""
    done = analyze(tmp_path, "security", "--offline=true", "--no-pager", "--threshold=20")
    assert done.returncode == 0, done.stdout + done.stderr


def analyze(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on the unit, with a program that exists."""
    unit = folder / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    command = ["systemd-analyze", *words, str(unit)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
