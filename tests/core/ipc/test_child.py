"""Processes that llmfw starts end with it, whichever thread started them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llmfw.core.ipc.child import start_child

CHILD = "from llmfw.core.ipc.child import settle; settle(); print('ready', flush=True); import signal; signal.pause()"
PARENT = """
import os, subprocess, sys, threading
from llmfw.core.ipc.child import start_child

def start():
    child = start_child([sys.executable, "-c", sys.argv[1]], os.environ, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)

thread = threading.Thread(target=start)
thread.start()
thread.join()
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux ends children with their parent")


def has_ended(pid: int, within_s: float) -> bool:
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], within_s)[0])
    finally:
        os.close(watched)


def test_a_stopped_child_dies_with_its_parent() -> None:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, signal.SIGSTOP)
        parent.kill()
        try:
            assert has_ended(child, 10)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_a_child_outlives_its_starting_thread() -> None:
    children: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        children.append(start_child([sys.executable, "-c", CHILD], os.environ, stdout=subprocess.PIPE))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with children[0] as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert not has_ended(child.pid, 0.1)
        child.kill()
        assert child.wait(10) == -signal.SIGKILL


def test_a_missing_program_raises_in_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_child([str(tmp_path / "missing")], {})
