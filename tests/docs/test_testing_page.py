"""Run the test classes in the pages as written, with bundled components in place of the reader's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..length import LENGTH, WITHOUT_UNUSED

ROOT = Path(__file__).parents[2]
FILES = {
    page: re.findall(
        r"^`tests/(test_\w+\.py)`\n\n```python\n(.*?)^```",
        (ROOT / "docs" / f"{page}.md").read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    for page in ("hooks", "testing_a_plugin")
}
BROKEN_PASSES = ROOT / "tests" / "core" / "testing" / "broken_passes.py"
BUNDLED = {
    "my_components.py": """
from llmfw.plugins.attention_torch.backend import TorchAttention as MyAttention
from llmfw.plugins.chat_jinja.named import ChatML as MyTemplate
from llmfw.plugins.grammar_llguidance.backend import LlguidanceBackend as MyGrammars
from llmfw.plugins.model_demo.source import DemoModel as MyModel
from llmfw.plugins.parsers_families.hermes import HermesToolParser as MyTools
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser as MyReasoning
from llmfw.plugins.store_sqlite.responses import SqliteResponses as MyResponses
""",
    "llmfw_s3/files.py": "from llmfw.plugins.store_sqlite.files import SqliteFiles as S3Files\n",
    "llmfw_pg/batches.py": "from llmfw.plugins.store_memory.batches import MemoryBatches as PostgresBatches\n",
    "fast_kernels/norms.py": BROKEN_PASSES.read_text("utf-8").partition("\nclass ForgetsEps")[0]
    + "\n\nFastNormPass = GoodPass\n",
}
CHOSEN = (
    *("one_backend", "examples", "every_field", "finished_output", "rendered_in_order", "has_an_end"),
    *("logits_stay", "range_returns", "survive_reopening", "first_result_counts"),
)
"""Substrings of test names: a few tests of each class show that it is collected and has its fixtures."""


@pytest.mark.long
@pytest.mark.slow
def test_examples_need_only_pytest_and_hypothesis(tmp_path: Path) -> None:
    examples = [file for files in FILES.values() for file in files]
    for name, text in (*examples, *BUNDLED.items()):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rs",
        "-v",
        "-p",
        "no:asyncio",
        "-p",
        "no:cacheprovider",
        *WITHOUT_UNUSED,
    ]
    command += [] if LENGTH == "full" else ["-k", " or ".join(CHOSEN)]
    done = subprocess.run([*command, "."], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert {page: len(files) for page, files in FILES.items()} == {"hooks": 3, "testing_a_plugin": 7}
    passed = set(re.findall(r"^(test_\w+\.py)::\S.* PASSED", done.stdout, re.MULTILINE))
    assert passed == {name for name, _ in examples}
    assert "does not have the capability survives_reopening" in done.stdout
