"""A chat template cannot hang the process or fill its memory, whatever it does, and ordinary ones notice nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.plugins.chat_jinja.meter import Limits
from llmfw.plugins.chat_jinja.renderer import MAX_SOURCE
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate

CHAT = [{"role": "user", "content": "Hi"}]
BIG = "{% set s = 'ab' * 400000 %}"


class Quick(JinjaChatTemplate):
    limits = Limits(seconds=60, steps=50_000)


def forever(body: str, start: str = "'a'") -> str:
    """Return a template that doubles a value a hundred times."""
    return f"{{% set ns = namespace(v={start}) %}}{{% for i in range(100) %}}{{% set ns.v = {body} %}}{{% endfor %}}"


LOOPS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) if range(9999)|sum == 1 %}{% endfor %}",
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "{% for i in range(99999) %}{{ range(9999)|map('string')|map('upper')|list|length }}{% endfor %}",
    "{% set c = cycler(1, 2) %}{% for a in range(99999) %}{% for b in range(99) %}{{ c.next() }}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{{ range(9999)|list|sort|length }}{% endfor %}",
    "{% for i in range(99999) %}{{ range(9999)|select('none')|first }}{{ range(9999)|sum }}{% endfor %}",
    "{% for i in range(99999) %}{{ cycler(*range(9999)).next() }}{% if 'a' in range(9999) %}{% endif %}{% endfor %}",
    BIG + "{% set t = 'ab' * 400000 %}{% for i in range(99999) %}{% if s == t %}{% endif %}{% endfor %}",
    BIG + "{% set t = 'ba' * 400 %}{% for i in range(99999) %}{% if t in s %}{% endif %}{% endfor %}",
    BIG + "{% for i in range(99999) %}{{ s.upper()|length }}{% endfor %}",
]
GROWTH = [
    "{{ 'a' * 10 ** 10 }}",
    "{{ 10 ** 10 * [1] }}",
    forever("ns.v ~ ns.v"),
    forever("ns.v + ns.v"),
    forever("ns.v + ns.v", "[1]"),
    forever("[ns.v, ns.v]", "[]"),
    forever("(ns.v, ns.v)", "()"),
    forever("{'a': ns.v, 'b': ns.v}", "{}"),
    forever("dict(a=ns.v, b=ns.v)", "{}"),
    forever("[ns.v]", "[]").replace("100", "999"),
    forever("[ns.v, ns.v]|join"),
    forever("''.join([ns.v, ns.v])"),
    forever("ns.v.replace('a', 'aa')"),
    forever("ns.v|replace('a', 'aa')"),
    forever("'%s%s' % (ns.v, ns.v)"),
    forever("'%s%s'|format(ns.v, ns.v)"),
    forever("'{0}{0}'.format(ns.v)"),
    forever("ns.v|tojson", "'\"'"),
    forever("[ns.v]|string", "'\"'"),
    "{% set ns = namespace(v='a') %}{% for i in range(99) %}{% set ns.v %}{{ ns.v }}{{ ns.v }}{% endset %}{% endfor %}",
    (
        "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% else %}{{ {varargs: 1} }}{% endif %}{% endmacro %}"
        "{{ m(60, 1) }}"
    ),
    BIG + "{{ " + " ~ ".join(["s"] * 999) + " }}",
    BIG + "{{ s|list }}",
    BIG
    + "{% set ns = namespace(v=0) %}{% for i in range(999) %}{% set ns.v = namespace(a=ns.v, b=s[1:]) %}{% endfor %}",
    "{% autoescape true %}{% for i in range(9) %}{{ '&' * 900000 }}{% endfor %}{% endautoescape %}",
    "{{ 'a'|center(10 ** 9) }}",
    "{{ 'a'.center(10 ** 9) }}{{ 'a'.zfill(10 ** 9) }}",
    "{{ '\t'.expandtabs(10 ** 9) }}",
    "{{ 'a\nb'|indent(width=10 ** 9) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "{{ [1]|batch(10 ** 9, 0)|list }}",
    "{{ [1]|slice(10 ** 9)|list }}",
    "{{ 1|round(10 ** 9, 'ceil') }}",
    "{{ [1]|tojson(indent=10 ** 9) }}",
    "{{ [[1], [2]]|sum(start=[]) }}",
    "{{ 2 ** 60000 * 2 ** 60000 }}{{ 2 ** 2 ** 60 }}",
    "{{ ('f' * 100000)|int(0, 16) }}",
    BIG + "{{ s.strip(s) }}",
    BIG + "{{ s|trim(s) }}",
    BIG + "{{ s|wordwrap(1) }}",
    "{{ strftime_now('%Y' * 9999) }}",
]


@pytest.mark.parametrize("source", LOOPS + GROWTH)
def test_a_template_beyond_a_limit_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match=r"^the chat template .*; correct it, or choose another one$"):
        Quick(source, {})


@pytest.mark.parametrize("source", LOOPS + GROWTH)
def test_expensive_messages_are_refused(source: str) -> None:
    template = Quick("{% if messages[0].content == 'go' %}" + source + "{% endif %}", {})
    with pytest.raises(RequestError, match="send fewer or shorter messages") as caught:
        template.render([{"role": "user", "content": "go"}])
    assert (caught.value.param, caught.value.code) == ("messages", "chat_template_limit")
    assert template.render(CHAT) == ""


@pytest.mark.parametrize(
    "source",
    [
        "{{ (5).to_bytes(1000000000, 'big') }}",
        "{{ ''.maketrans({'a': 'b'}) }}",
        "{{ {}.fromkeys(range(99999)) }}",
        "{{ lipsum(n=1000000) }}",
        forever("namespace(a=ns.v, b=ns.v)") + "{{ ns.v }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
        "{% for x in range(9999) recursive %}{{ loop(range(9999)) }}{% endfor %}",
    ],
)
def test_unmeasurable_operations_are_refused(source: str) -> None:
    with pytest.raises(RequestError, match=r"^the chat template"):
        JinjaChatTemplate(source, {}).render(CHAT)


@pytest.mark.parametrize(
    "source",
    [
        "x" * (MAX_SOURCE + 1),
        "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
        "{{ " + "1 + " * 9999 + "1 }}",
        "{% if x %}" * 500 + "{% endif %}" * 500,
        "{% for i in x %}" * 25 + "{% endfor %}" * 25,
    ],
)
def test_an_uncompilable_template_is_refused(source: str) -> None:
    with pytest.raises(ConfigError, match=r"^the chat template (has|nests|cannot)"):
        JinjaChatTemplate(source, {})


def test_the_template_s_length_is_limited() -> None:
    """Compiling is linear in it: 1.2 s of processor time at the limit."""
    with pytest.raises(ConfigError, match="has 65537 characters; the limit is 65536"):
        JinjaChatTemplate("x" * (2**16 + 1), {})
    assert JinjaChatTemplate("x" * 2**16, {}).render(CHAT) == "x" * 2**16


def test_a_template_of_nested_branches_compiles_fast() -> None:
    source = "{% if messages %}" * 18 + "{% for x in messages %}{{ x.role }}{% endfor %}" + "{% endif %}" * 18
    assert JinjaChatTemplate(source, {}).render(CHAT) == "user"


def test_the_deadline_holds_for_any_number_of_steps() -> None:
    class Late(JinjaChatTemplate):
        limits = Limits(seconds=0.05, steps=10**12)

    with pytest.raises(ConfigError, match=r"takes longer than 0\.05 s"):
        Late(LOOPS[0], {})


def test_memory_has_a_separate_limit() -> None:
    class Small(JinjaChatTemplate):
        limits = Limits(seconds=60, memory=2**26)

    grow = "{% for i in range(999) %}{% set ns.v = namespace(a=ns.v, b=s[i:]) %}{% endfor %}"
    with pytest.raises(ConfigError, match="takes more than 64 MiB of memory"):
        Small(BIG + "{% set ns = namespace(v=0) %}" + grow, {})


def test_the_limits_grow_with_the_input() -> None:
    content = "a" * 3_000_000
    assert (
        JinjaChatTemplate("{{ messages[-1].content * 2 }}", {}).render([{"role": "user", "content": content}])
        == content * 2
    )


def test_render_briefly_gives_up_early() -> None:
    template = JinjaChatTemplate(
        "{% for i in range(99999) %}{% if messages[0].content == 'go' %}{% endif %}{% endfor %}", {}
    )
    assert template.render_briefly(CHAT) is None
    assert template.render(CHAT) == ""
    assert JinjaChatTemplate("{{ messages[0].content }}", {}).render_briefly(CHAT) == "Hi"


def test_threads_render_concurrently() -> None:
    template = Quick("{% for i in range(999) %}{{ messages[0].content }}{% endfor %}", {})
    found: dict[int, Any] = {}

    def render(i: int) -> None:
        found[i] = template.render([{"role": "user", "content": str(i)}]) == str(i) * 999

    threads = [threading.Thread(target=render, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(8), True)


ORDINARY = [
    "{{ messages|tojson(indent=2) }}",
    "{{ '%5.1f|%-4s|%(a)s' }}{{ '%5.1f|%-4s' % (1.25, 'ab') }}{{ '%(a)s' % {'a': 'b'} }}",
    "{{ 'a{}c{x}'.format('b', x=1) }}{{ '{:>5}'.format('a') }}",
    "{{ 'a b'.split()|join('-') }}{{ 'x'.join(['a', 'b']) }}{{ ['a', 1]|join(', ') }}",
    "{{ messages|map(attribute='role')|list }}{{ messages|selectattr('role', 'equalto', 'user')|list|length }}",
    "{% for k, v in {'b': 1, 'a': [1, {'c': none}]}|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{{ 'a\nb'|indent }}{{ 'abc'|center(9) }}{{ 'a'|replace('a', 'bb') }}{{ ' a '|trim }}{{ 'ab'[::-1] }}",
    "{{ [1, 2] + [3] }}{{ (1, 2) + (3,) }}{{ 2 ** 10 }}{{ 7 % 3 }}{{ 'ab' * 2 }}{{ 1 + 2 + 3 }}{{ 'a' + 'b' ~ 1 }}",
    "{% set ns = namespace(x=1) %}{% for m in messages if m.role == 'user' %}{% set ns.x = ns.x + loop.index %}{% endfor %}{{ ns.x }}",
    "{{ messages[0].items()|list }}{{ messages[0]['content'] }}{{ messages[0].get('x', 'y') }}{{ messages[0].nothing }}",
    "{% for x in [[1, [2]], [3]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth }}{% endfor %}",
    (
        "{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}{{ m(1, 2, 3, x=4) }}"
        "{% call m(1) %}c{% endcall %}"
    ),
    "{% filter upper %}a{% endfilter %}{% set x %}b{{ 1 }}{% endset %}{{ x }}{% with y = 1 %}{{ y }}{% endwith %}",
    "{{ '<a>' | e }}{% autoescape true %}{{ '<a>' }}{{ 'a' ~ '<' }}{% endautoescape %}{{ 'a<b>c</b>'|striptags }}",
    "{{ 3.0 }}{{ none }}{{ true }}{{ [1, 'a', none] }}{{ 10 ** 20 }}{{ 5 // 2 }}{{ 5 / 2 }}{{ -3 }}{{ 'a' < 'b' < 'c' }}",
    "{{ 'a' in ['a', 'b'] }}{{ messages[0].role in ['user'] }}{{ 'x' not in messages[0].content }}{{ 'abc' is in 'abcd' }}",
    "{% for a in 'abc' %}{{ loop.cycle('x', 'y') }}{{ loop.last }}{% if loop.changed(a) %}!{% endif %}{% else %}e{% endfor %}",
    "{% set j = joiner(', ') %}{{ j() }}{{ j() }}{{ dict(a=1) }}{{ range(3)|list }}{{ [3, 1, 2]|sort }}{{ [1, 2]|sum }}",
    (
        "{% generation %}{{ messages[0].content }}{% endgeneration %}{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
        "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    ),
]


@pytest.mark.parametrize("source", ORDINARY)
def test_ordinary_templates_render_like_transformers(source: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "é <b>"}]
    expected, _ = render_jinja_template(
        conversations=[chat], chat_template=source, add_generation_prompt=True
    )
    assert JinjaChatTemplate(source, {}).render(chat) == expected[0]
