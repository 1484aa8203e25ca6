"""What the demo model's chat template promises."""

import jinja2
import pytest
from transformers import AutoTokenizer

from llmfw.plugins.model_demo.tokenization import TEMPLATE
from llmfw.plugins.model_demo.train import WEIGHTS

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"type": "function", "id": "1", "function": {"name": "f", "arguments": {"x": "é"}}}
CALL_TEXT = '<tool_call>\n{"name": "f", "arguments": {"x": "é"}}\n</tool_call>'


@pytest.fixture(scope="module")
def render():
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS)

    def rendered(*messages, **more):
        return tokenizer.apply_chat_template(list(messages), tokenize=False, **more)

    return rendered


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def test_the_shipped_template_equals_its_source():
    assert (WEIGHTS / "chat_template.jinja").read_text() == TEMPLATE.read_text()


def test_each_role_has_a_turn(render):
    text = render(message("system", "S"), message("user", "U"), message("assistant", "A"))
    assert text == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
    )


def test_developer_renders_like_system(render):
    assert render(message("developer", "S")) == render(message("system", "S"))


def test_the_generation_prompt_is_optional(render):
    asked = render(message("user", "U"), add_generation_prompt=True)
    assert asked == render(message("user", "U")) + "<|im_start|>assistant\n"


def test_text_content_parts_are_joined(render):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render(message("user", parts)) == render(message("user", "ab"))


def test_missing_content_renders_empty(render):
    assert render(message("assistant", None)) == "<|im_start|>assistant\n<|im_end|>\n"


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (message("robot", "x"), "Unknown role of a message: robot"),
        (message("user", [{"type": "image_url", "image_url": {}}]), "text only"),
        (message("user", 3), "must be a string or a list of text parts"),
    ],
)
def test_unsupported_messages_are_refused(render, bad, said):
    with pytest.raises(jinja2.TemplateError, match=said):
        render(bad)


def test_thinking_marks_the_last_user_turn_only(render):
    text = render(message("user", "a"), message("assistant", "b"), message("user", "c"), enable_thinking=True)
    assert "user\na<|im_end|>" in text
    assert "user\nc /think<|im_end|>" in text


def test_thoughts_before_earlier_answers_are_dropped(render):
    plain = render(message("assistant", "b"), message("user", "c"))
    assert plain == render(message("assistant", "b", reasoning_content="r"), message("user", "c"))
    assert plain == render(message("assistant", "<think>\nr\n</think>\n\nb"), message("user", "c"))


def test_tools_are_listed_in_the_system_turn(render):
    text = render(message("system", "S"), message("user", "U"), tools=[TOOL, TOOL])
    listed = '{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}'
    assert text.startswith("<|im_start|>system\nS\n\n# Tools")
    assert f"<tools>\n{listed}\n{listed}\n</tools>" in text
    assert text.count("<|im_start|>system") == 1


def test_tools_need_no_system_message(render):
    assert render(message("user", "U"), tools=[TOOL]).startswith("<|im_start|>system\n# Tools")


@pytest.mark.parametrize("arguments", [{"x": "é"}, '{"x": "é"}'])
def test_calls_are_rendered_as_generated(render, arguments):
    call = {"function": {"name": "f", "arguments": arguments}}
    assert f"<|im_start|>assistant\n{CALL_TEXT}<|im_end|>" in render(
        message("assistant", None, tool_calls=[call])
    )


def test_calls_follow_the_content_line_by_line(render):
    text = render(message("assistant", "A", tool_calls=[CALL, CALL]))
    assert text == f"<|im_start|>assistant\nA\n{CALL_TEXT}\n{CALL_TEXT}<|im_end|>\n"


def test_consecutive_tool_results_share_one_turn(render):
    text = render(message("tool", "1"), message("tool", "2"))
    assert text == (
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
    )
