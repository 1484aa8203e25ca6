"""A model's own template renders as transformers renders it, and refuses with its own words."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from llmfw.core.errors import ConfigError, RequestError
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

TEMPLATE = """{{ bos_token }}{% for message in messages %}
    {%- if message.role not in ["user", "assistant", "tool"] %}{{ raise_exception("no role " + message.role) }}{% endif %}
    {%- if message.content is not defined %}{% continue %}{% endif %}
<{{ message.role }}>{% generation %}{{ message.content }}{% endgeneration %}
{% endfor %}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>{% endif %}{% endif %}"""
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {"name": "città", "parameters": {"type": "object"}}}]
CHAT = [
    {"role": "user", "content": "<b>é</b>"},
    {"role": "assistant", "content": None},
    {"role": "user", "content": "2"},
]


def render(source: str, messages=CHAT, **kwargs: Any) -> str:
    return JinjaChatTemplate(source, SPECIAL).render(messages, **kwargs)


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("kwargs", [{}, {"enable_thinking": True}])
@pytest.mark.parametrize("tools", [[], TOOLS])
def test_the_text_is_that_of_transformers(prompt, kwargs, tools):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)
    expected = tokenizer.apply_chat_template(
        CHAT,
        tools=tools or None,
        chat_template=TEMPLATE,
        add_generation_prompt=prompt,
        tokenize=False,
        **kwargs,
    )
    assert render(TEMPLATE, tools=tools, add_generation_prompt=prompt, **kwargs) == expected


def test_the_templates_own_refusal_is_the_requests_error():
    with pytest.raises(RequestError, match="the chat template: no role cook") as caught:
        render(TEMPLATE, [{"role": "cook", "content": ""}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize("source", ["{{ messages[9].content.x }}", "{{ 1 / 0 }}", "{{ messages + 3 }}"])
def test_whatever_goes_wrong_while_rendering_is_the_requests_error(source):
    with pytest.raises(RequestError, match="the chat template"):
        render(source)


@pytest.mark.parametrize("source", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_a_template_cannot_leave_its_sandbox(source):
    with pytest.raises(RequestError, match="unsafe"):
        render(source)


def test_a_template_with_a_syntax_error_is_refused_when_it_is_built():
    with pytest.raises(ConfigError, match="syntax error in line 2"):
        JinjaChatTemplate("a\n{% if %}", {})


def test_a_model_without_template_says_what_can_be_done():
    with pytest.raises(RequestError, match="no chat template: use /v1/completions"):
        render("")


def test_a_request_cannot_bring_its_own_template():
    with pytest.raises(RequestError) as caught:
        render(TEMPLATE, chat_template="{{ 1 }}")
    assert caught.value.param == "chat_template_kwargs.chat_template"


def test_an_empty_conversation_is_refused():
    with pytest.raises(RequestError, match="messages is empty"):
        render(TEMPLATE, [])


def test_the_last_message_is_continued_where_asked():
    chat = [CHAT[0], {"role": "assistant", "content": "It is"}]
    text = render(
        "{{ messages[-1].content }}</s>", chat, add_generation_prompt=False, continue_final_message=True
    )
    assert text == "It is"
    with pytest.raises(RequestError, match="add_generation_prompt must then be false"):
        render(TEMPLATE, chat, continue_final_message=True)


def test_text_parts_reach_the_template_as_one_text():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "a\nb"


@pytest.mark.parametrize(
    ("arguments", "seen"), [('{"x": "é"}', '{"x": "é"}'), ("{broken", '"{broken"'), ("3", '"3"')]
)
def test_arguments_of_tool_calls_are_objects_to_the_template_where_they_are_json(arguments, seen):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert render("{{ messages[0].tool_calls[0].function.arguments | tojson }}", [message]) == seen
    assert call["function"]["arguments"] == arguments
