"""The harness itself: a server at rest passes, and harm of each kind is noticed."""

from __future__ import annotations

import os
import signal

import pytest

from .harness import unhurt


def test_a_server_at_rest_is_unhurt(server):
    with unhurt(server, max_p99_ms=1000):
        pass


def test_slow_answers_are_noticed(server):
    with pytest.raises(AssertionError, match="p99"), unhurt(server, max_p99_ms=0):
        pass


def test_failed_answers_are_noticed(server):
    api = min(server.pids)
    with pytest.raises(AssertionError, match="failed"), unhurt(server):
        os.kill(api, signal.SIGKILL)
