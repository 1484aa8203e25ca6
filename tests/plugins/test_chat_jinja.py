"""A model's own template renders as transformers renders it, and refuses with its own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.plugin.plugins import load_plugins
from llmfw.plugins.chat_jinja.content_form import content_forms
from llmfw.plugins.chat_jinja.named import TEMPLATES, ChatML, DeepSeek, Gemma, Llama3, Mistral
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
def test_text_equals_transformers(prompt, kwargs, tools):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)
    # transformers 5.17 writes None into the text, 5.23 leaves such fields out itself
    messages = [{key: value for key, value in message.items() if value is not None} for message in CHAT]
    expected = tokenizer.apply_chat_template(
        messages,
        tools=tools or None,
        chat_template=TEMPLATE,
        add_generation_prompt=prompt,
        tokenize=False,
        **kwargs,
    )
    assert render(TEMPLATE, tools=tools, add_generation_prompt=prompt, **kwargs) == expected


def test_the_template_s_refusal_is_a_request_error():
    with pytest.raises(RequestError, match="the chat template: no role cook") as caught:
        render(TEMPLATE, [{"role": "cook", "content": ""}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize("source", ["{{ messages[9].content.x }}", "{{ 1 / 0 }}", "{{ messages + 3 }}"])
def test_rendering_errors_are_request_errors(source):
    with pytest.raises(RequestError, match="the chat template"):
        render(source)


@pytest.mark.parametrize("source", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}"])
def test_a_template_cannot_leave_its_sandbox(source):
    with pytest.raises(RequestError, match="unsafe"):
        render(source)


def test_a_syntax_error_is_refused_at_construction():
    with pytest.raises(ConfigError, match="syntax error in line 2"):
        JinjaChatTemplate("a\n{% if %}", {})


@pytest.mark.parametrize("half", ["{{ '\\ud800' }}", "{{ 'é' + '\\udc00' }}"])
def test_an_unpaired_surrogate_is_refused(half: str) -> None:
    with pytest.raises(ConfigError, match="half of a surrogate pair"):
        JinjaChatTemplate(half, {})
    with pytest.raises(RequestError, match="half of a surrogate pair"):
        render("{% if messages|length > 2 %}" + half + "{% endif %}")
    with pytest.raises(RequestError, match=r"the chat template: .ud800") as caught:
        render("{{ raise_exception('\\ud800') }}")
    str(caught.value).encode()


def test_a_missing_template_suggests_sending_text():
    with pytest.raises(RequestError, match="no chat template: send text"):
        render("")


def test_a_request_cannot_replace_the_template():
    with pytest.raises(RequestError) as caught:
        render(TEMPLATE, chat_template="{{ 1 }}")
    assert caught.value.param == "chat_template_kwargs.chat_template"


def test_an_empty_conversation_is_refused():
    with pytest.raises(RequestError, match="messages is empty"):
        render(TEMPLATE, [])


def test_continue_final_message_leaves_the_turn_open():
    chat = [CHAT[0], {"role": "assistant", "content": "It is"}]
    text = render(
        "{{ messages[-1].content }}</s>", chat, add_generation_prompt=False, continue_final_message=True
    )
    assert text == "It is"
    with pytest.raises(RequestError, match="add_generation_prompt must then be false"):
        render(TEMPLATE, chat, continue_final_message=True)


def test_text_content_parts_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert render("{{ messages[0].content }}", [{"role": "user", "content": parts}]) == "a\nb"


@pytest.mark.parametrize(
    ("arguments", "seen"),
    [
        ('{"x": "é"}', '{"x": "é"}'),
        ("{broken", '"{broken"'),
        ("3", '"3"'),
        ('{"x": 1e400}', '"{\\"x\\": 1e400}"'),
        ('{"x": NaN}', '"{\\"x\\": NaN}"'),
        ('{"x": "\\ud800"}', '"{\\"x\\": \\"\\\\ud800\\"}"'),
        ('{"x": "\\ud83d\\ude00"}', '{"x": "\U0001f600"}'),
        (f'{{"x": {"9" * 5000}}}', f'"{{\\"x\\": {"9" * 5000}}}"'),
        ("[" * 100_000, json.dumps("[" * 100_000)),
    ],
    ids=lambda text: text[:20],
)
def test_json_arguments_reach_the_template_as_objects(arguments, seen):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert render("{{ messages[0].tool_calls[0].function.arguments | tojson }}", [message]) == seen
    assert call["function"]["arguments"] == arguments


PARTS = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
TEXT = [{"role": "user", "content": "ab"}]


@pytest.mark.parametrize(
    ("source", "forms"),
    [
        ("{{ messages[0].content }}", (True, False)),
        ("{% for part in messages[0].content %}{{ part.text }}{% endfor %}", (False, True)),
        ("{% for part in messages[0]['content'] | reverse %}{% break %}{% endfor %}", (False, True)),
        ("{% set c = messages[0]['content'] %}{% for part in c %}{% endfor %}", (False, True)),
        ("{% macro m(content) %}{% for x in content %}{% endfor %}{% endmacro %}", (False, True)),
        (
            "{% if m.content is string %}{% else %}{% for x in m.content %}{% endfor %}{% endif %}",
            (True, True),
        ),
        (
            "{% generation %}{% for x in messages %}{{ x.content }}{% endfor %}{% endgeneration %}",
            (True, False),
        ),
        ("{% for x in content.split('a') %}{% endfor %}", (True, False)),
    ],
)
def test_content_forms_are_read_from_the_template(source, forms):
    assert content_forms(source) == forms


def test_content_is_passed_in_the_expected_form():
    loop = "{% for part in messages[0].content %}({{ part.text }}){% endfor %}"
    either = (
        "{% if messages[0].content is string %}{{ messages[0].content }}{% else %}" + loop + "{% endif %}"
    )
    assert render(loop, TEXT) == "(ab)"
    assert render(loop, PARTS) == render(either, PARTS) == "(a)(b)"
    assert render(either, TEXT) == "ab"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% set _ = messages[0].update({'role': 'system'}) %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_hostile_templates_neither_escape_nor_loop(source):
    with pytest.raises(RequestError, match="the chat template"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ self._TemplateReference__context }}",
    ],
)
def test_hidden_attributes_are_empty(source):
    assert render(source) == ""


TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Why?"},
]
RENDERED = {
    ChatML: "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello"
    "<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
    Llama3: "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    Mistral: "<s>[INST] Hi[/INST] Hello</s>[INST] Be brief.\n\nWhy?[/INST]",
    Gemma: "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
    "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
    DeepSeek: "<s>Be brief.<｜User｜>Hi<｜Assistant｜>Hello</s><｜User｜>Why?<｜Assistant｜>",
}


@pytest.mark.parametrize("template", RENDERED)
def test_a_named_template_renders_its_family_s_turns(template):
    assert template("the model's own", SPECIAL).render(TURNS) == RENDERED[template]


@pytest.mark.parametrize("template", RENDERED)
def test_a_named_template_continues_a_message(template):
    chat = [*TURNS, {"role": "assistant", "content": "Because it"}]
    text = template("", SPECIAL).render(chat, add_generation_prompt=False, continue_final_message=True)
    assert text.endswith("Because it")


def test_named_templates_render_or_refuse_tools():
    registry = load_plugins().registry
    files = {path.stem for path in TEMPLATES.glob("*.jinja")}
    assert files == set(registry.names("chat_template")) - {"jinja"}
    for name in files:
        template = registry.find("chat_template", name).load()("", SPECIAL)
        if name in ("gemma", "deepseek"):
            with pytest.raises(RequestError, match="no form for tools"):
                template.render(TURNS, tools=TOOLS)
        else:
            assert "città" in template.render(TURNS, tools=TOOLS)


def test_chatml_renders_tools_like_the_demo_model():
    path = Path(__file__).parents[2] / "plugins" / "model_demo" / "chat_template.jinja"
    demo = JinjaChatTemplate(path.read_text("utf-8"), SPECIAL)
    call = {"type": "function", "function": {"name": "città", "arguments": '{"x": 1}'}}
    answer = {"role": "tool", "content": "1"}
    chat = [*TURNS, {"role": "assistant", "content": None, "tool_calls": [call, call]}, answer, answer]
    for messages in (chat, chat[1:]):
        assert ChatML("", SPECIAL).render(messages, tools=TOOLS) == demo.render(messages, tools=TOOLS)
