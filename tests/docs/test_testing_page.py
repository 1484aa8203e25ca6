"""The examples of docs/testing_a_plugin.md are test classes, each with the fixture that is its part."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing_a_plugin.md"
FILES = re.findall(
    r"^`tests/(test_\w+\.py)`\n\n```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
)
STAND_INS = """
from llmfw.plugins.attention_torch.backend import TorchAttention as MyAttention
from llmfw.plugins.chat_jinja.named import ChatML as MyTemplate
from llmfw.plugins.grammar_llguidance.backend import LlguidanceBackend as MyGrammars
from llmfw.plugins.model_demo.source import DemoModel as MyModel
from llmfw.plugins.parsers_families.hermes import HermesToolParser as MyTools
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser as MyReasoning
from llmfw.plugins.store_sqlite.responses import SqliteResponses as MyResponses
"""


@pytest.mark.slow
def test_the_examples_pass_with_parts_that_keep_their_promises(tmp_path: Path) -> None:
    for name, text in (*FILES, ("my_components.py", STAND_INS)):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    # A few of the tests: that the classes are collected and have their fixtures is what counts.
    chosen = "one_backend or examples or every_field or finished_output or in_their_order or has_an_end"
    done = subprocess.run(
        [*command, "-k", chosen, "."], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert len(FILES) == 7
    [passed] = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= len(FILES)
