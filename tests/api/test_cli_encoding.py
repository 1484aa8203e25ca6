"""What is not UTF-8 is refused in one line, wherever it stands on the command line or in the environment."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli

NOT_UTF8 = "x\udcff"  # as Python decodes b"x\xff"


def run(*args: str, **environment: str) -> Result:
    return CliRunner().invoke(build_cli(), args, env=environment)


@pytest.mark.parametrize(
    "args",
    [
        ("serve", "--served-model-name", NOT_UTF8),
        ("serve", NOT_UTF8),
        ("serve", f"--storage={NOT_UTF8}"),
        ("serve", "-o", f"policy.a={NOT_UTF8}", "--show-config"),
        ("batch", "run", NOT_UTF8),
        ("chat", "--url", NOT_UTF8),
        (NOT_UTF8,),
    ],
)
def test_a_non_utf_8_argument_is_refused(args: tuple[str, ...]) -> None:
    found = run(*args)
    assert found.exit_code == 2
    assert "is not UTF-8" in found.stderr.splitlines()[-1]
    assert r"x\xff" in found.stderr.splitlines()[-1]


def test_a_non_utf_8_environment_is_refused() -> None:
    found = run("serve", LLMFW_SERVED_MODEL_NAME=NOT_UTF8)
    assert found.exit_code == 2
    assert r"LLMFW_SERVED_MODEL_NAME, b'x\xff', in the environment is not UTF-8" in found.stderr


@pytest.mark.parametrize("args", [("serve", "--api-key", NOT_UTF8), ("serve", f"--api-key={NOT_UTF8}")])
def test_a_non_utf_8_key_is_not_printed(args: tuple[str, ...]) -> None:
    assert r"x\xff" not in run(*args).stderr
    assert "is not UTF-8" in run(*args).stderr
    assert r"x\xff" not in run("serve", LLMFW_API_KEY=NOT_UTF8).stderr
