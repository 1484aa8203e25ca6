"""A component is asked until it fails, whatever it raises."""

from __future__ import annotations

import pytest

from llmfw.core.plugin.asking import Asked

from ..base.test_described import UnreadableError


def test_a_failure_without_a_readable_message_counts(caplog: pytest.LogCaptureFixture) -> None:
    def ask() -> int:
        raise UnreadableError

    asked = Asked("policy 'x'", "Requests are admitted in order of arrival")
    assert asked.answer(ask) is None
    assert (
        "policy 'x' failed and is no longer used: UnreadableError: its message cannot be read" in caplog.text
    )
    assert asked.answer(lambda: 1) is None
