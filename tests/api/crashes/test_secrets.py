"""Keys and passwords are hidden in every text of a crash report."""

from __future__ import annotations

import time

import pytest

from llmfw.api.crashes.secrets import Secrets

ENVIRONMENT = {"MY_DB_PASSWORD": "hunter2-hunter2", "HF_TOKEN": "short", "HOME": "/home/ann-of-green"}


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("redis://ann:pass@host/0 is down", "redis://***@host/0 is down"),
        ("http://token@host/x@y", "http://***@y"),
        ("'db://ann:p/a#s@s@host/0' is down", "'db://***@host/0' is down"),
        ("'hunter2-hunter2' is refused", "'***' is refused"),
        ("the key is my own words", "the key is ***"),
        ("Bearer sk-1234567890abcdef", "Bearer ***"),
        ("in /home/ann-of-green, a short one", "in /home/ann-of-green, a short one"),
    ],
)
def test_secrets_are_replaced_and_nothing_else(text: str, hidden: str) -> None:
    assert Secrets(["my own words"], ENVIRONMENT).hide(text) == hidden


def test_without_known_secrets_texts_stay() -> None:
    assert Secrets([], {}).hide("Decode batch. #running-req: 5") == "Decode batch. #running-req: 5"


@pytest.mark.parametrize("piece", ["a-", "-", "-eyJ", "a_", "://a", "-sk-"])
def test_hostile_texts_take_no_quadratic_time(piece: str) -> None:
    """Patterns that look through a run of letters once for each place in it took a minute for 64 KiB."""
    text = piece * (65_536 // len(piece))
    begun = time.process_time()
    Secrets([], {}).hide(text)
    assert time.process_time() - begun < 10
