"""The parser that docs/parsers.md shows keeps the promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from llmfw.core.testing.parsing import halves

from .parsing import TOOLS, parse

PAGE = Path(__file__).parents[3] / "docs" / "parsers.md"


def test_the_documented_parser_keeps_its_promises() -> None:
    code = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)  # noqa: S102
    text = 'a < b <call name="fly">{}</call> <call name="add">{"a": 1}</call> c <call'
    for pieces in halves(text):
        parsed = parse(names["MyFamilyTools"](TOOLS), *pieces)
        assert parsed == ('a < b <call name="fly">{}</call>  c <call', [("add", '{"a": 1}')])
