"""Of several chat templates, the ones are used that transformers uses; without a default, none is."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from llmfw.core.base.errors import ModelError
from llmfw.core.model.tokenizer.template_files import find_chat_template
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

MESSAGES = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
DEFAULT = "\n{% set m = messages[0] %}\n  plain {{ m.content }}\n\n"
TOOL_USE = "\n {%- macro name(t) %}{{ t.function.name }}{% endmacro %}\n{% for t in tools %}\n [{{ name(t) }}]\n{% endfor %}\n   "


def listed(**templates: Any) -> dict[str, Any]:
    return {"chat_template": [{"name": name, "template": text} for name, text in templates.items()]}


@pytest.mark.parametrize(("tools", "of_tools"), [([], DEFAULT), (TOOLS, TOOL_USE)])
@pytest.mark.parametrize("form", ["list", "object", "files"])
def test_chats_with_tools_use_the_tool_template(
    tmp_path: Path, tools: list[dict[str, Any]], of_tools: str, form: str
) -> None:
    config = listed(default=DEFAULT, tool_use=TOOL_USE, rag="other")
    if form == "object":
        config = {"chat_template": {"default": DEFAULT, "tool_use": TOOL_USE}}
    elif form == "files":
        config = {}
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "chat_template.jinja").write_text(DEFAULT)
        (tmp_path / "additional_chat_templates/tool_use.jinja").write_text(TOOL_USE)
    source, _ = find_chat_template(tmp_path, config)
    [expected], _ = render_jinja_template([MESSAGES], tools=tools or None, chat_template=of_tools)
    assert (
        JinjaChatTemplate(source, {}).render(MESSAGES, tools=tools, add_generation_prompt=False) == expected
    )


def test_without_a_default_template_none_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_chat_template(tmp_path, listed(rag="other"))[0] == ""
    assert "named 'rag' and none named 'default'" in caplog.text


@pytest.mark.parametrize("template", [[{"name": "default"}], ["text"], {"default": 1}, 1, True])
def test_invalid_templates_are_refused(tmp_path: Path, template: Any) -> None:
    with pytest.raises(ModelError, match="chat_template is"):
        find_chat_template(tmp_path, json.loads(json.dumps({"chat_template": template})))
