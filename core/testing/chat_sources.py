"""Conformance tests of chat templates that run the model's Jinja source: its meaning and its cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.interfaces.chat_template import ChatTemplate

from .declared import built as built_as
from .declared import declared
from .resources import peak_memory

SAID = [{"role": "user", "content": " one two\tthree\n"}, {"role": "assistant", "content": "four"}]

RENDERED = {
    "{{ 'a' * 3 }}{{ 3 * 'b' }}{{ [1] * 2 }}{{ 2 * 3 }}": "aaabbb[1, 1]6",
    "{{ 2 ** 5 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ 7 / 2 }} {{ -3 | abs }}": "32 3 3 3.5 3",
    "{{ 'a' ~ 1 ~ none }}{{ 'a' + 'b' }}{{ [1] + [2] }}": "a1Noneab[1, 2]",
    "{{ '%s-%03d' % ('a', 7) }} {{ '%s' | format('b') }} {{ '%5.2f' | format(1.234) }}": "a-007 b  1.23",
    "{{ '%(a)s' % {'a': 1} }}{{ '%%' % () }}": "1%",
    "{{ '{}-{a}'.format(1, a=2) }}{{ '{:>3}'.format('x') }}": "1-2  x",
    "{{ ' a '.strip() }}|{{ 'xax'.strip('x') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}": "a|a|a | a",
    "{{ 'abcabc'.replace('b', 'X') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'aaa'.replace('a', 'b', 0) }}": "aXcaXc bba aaa",
    "{{ 'aaa' | replace('a', 'b', 1) }} {{ 'aaa' | replace('a', 'b') }}": "baa bbb",
    "{{ 'a,b'.split(',') }} {{ 'a b  c'.split() }} {{ 'a,b,c'.split(',', 1) }}": "['a', 'b'] ['a', 'b', 'c'] ['a', 'b,c']",
    "{{ ','.join(['a', 'b']) }} {{ ['a', 1, none] | join('-') }} {{ [{'n': 'x'}] | join(attribute='n') }}": "a,b a-1-None x",
    "{{ 'a\\tb'.expandtabs(4) }}|{{ 'a'.center(3) }}|{{ 'a'.ljust(2) }}|{{ 'a'.rjust(2) }}|{{ '7'.zfill(3) }}": "a   b| a |a | a|007",
    "{{ 'a' | center(5) }}|{{ 'a\nb' | indent(2) }}|{{ 'a\nb' | indent('>', first=true) }}": "  a  |a\n  b|>a\n>b",
    "{{ 'hello world' | title }} {{ 'aB' | upper }} {{ 'aB' | lower }} {{ 'ab' | capitalize }}": "Hello World AB ab Ab",
    "{{ ' a ' | trim }}|{{ 'xax' | trim('x') }}|{{ 'a b c' | wordcount }}": "a|a|3",
    "{{ 'a' in 'abc' }} {{ 1 in [2] }} {{ 'k' in {'k': 1} }} {{ 'x' not in 'abc' }}": "True False True True",
    "{{ 'abc'.startswith('a') }} {{ 'abc'.endswith('b') }} {{ 'abc'.find('c') }} {{ 'aba'.count('a') }}": "True False 2 2",
    "{{ 'abc'[1] }}{{ 'abc'[::-1] }}{{ 'abc'[1:] }}{{ [1, 2, 3][-1] }}{{ [1, 2, 3][:2] }}": "bcbabc3[1, 2]",
    "{{ {'b': 1, 'a': 2} | dictsort }} {{ {'a': 1}.items() | list }} {{ {'a': 1}.get('b', 3) }}": "[('a', 2), ('b', 1)] [('a', 1)] 3",
    "{{ [3, 1, 2] | sort }} {{ [3, 1] | max }} {{ [3, 1] | min }} {{ [1, 2] | sum }} {{ [1, 1] | unique | list }}": "[1, 2, 3] 3 1 3 [1]",
    "{{ [{'n': 2}, {'n': 1}] | sort(attribute='n') | map(attribute='n') | list }}": "[1, 2]",
    "{{ [1, 2, 3] | select('odd') | list }} {{ [1, 2] | reject('equalto', 1) | list }}": "[1, 3] [2]",
    "{{ [{'n': 1}, {}] | selectattr('n', 'defined') | list }} {{ [{'n': 1}] | rejectattr('n', 'eq', 1) | list }}": "[{'n': 1}] []",
    "{{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | slice(2) | list }}": "[[1, 2], [3]] [[1, 2], [3]]",
    "{{ [1, 2] | first }}{{ [1, 2] | last }}{{ [1, 2] | length }}{{ 'ab' | reverse }}{{ [1, 2] | reverse | list }}": "122ba[2, 1]",
    "{{ '12' | int + 1 }} {{ 'x' | int(5) }} {{ '1.5' | float }} {{ 1.55 | round(1) }} {{ 2.5 | round }}": "13 5 1.5 1.6 2.0",
    "{{ {'a': [1, none, 'é']} | tojson }} {{ {'b': 1, 'a': {}} | tojson(indent=2) }}": '{"a": [1, null, "é"]} {\n  "b": 1,\n  "a": {}\n}',
    "{{ '<a>&' | e }} {{ '<a>' | safe }} {{ '<a>' | string }}": "&lt;a&gt;&amp; <a> <a>",
    "{{ x | default('d') }} {{ '' | default('d', true) }} {{ x is defined }} {{ none is none }}": "d d False True",
    "{{ 1 if false else 2 }}{{ 'a' if x is not defined }}{{ not true }}": "2aFalse",
    "{% for i in range(3) %}{{ loop.index0 }}{{ loop.last }}{% if i == 1 %}{% break %}{% endif %}{% endfor %}": "0False1False",
    "{% for i in range(4) %}{% if i % 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}": "02",
    "{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}": "3",
    "{% macro m(a, b='x') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m('<') }}": "1x12<x",
    "{% set t %}a{{ 1 }}{% endset %}{{ t }}{{ t | length }}{% filter upper %}b{% endfilter %}": "a12B",
    "{% for m in messages %}{{ m.role }}={{ m['content'] | trim }};{% endfor %}": "user=one two\tthree;assistant=four;",
    "{% for k, v in {'a': 1, 'b': 2}.items() recursive %}{{ k }}{{ v }}{% else %}no{% endfor %}": "a1b2",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc": "a\n  b\nc",
    "{{ messages | map(attribute='role') | join(',') }}{{ messages | groupby('role') | length }}": "user,assistant2",
    "{{ 'a-b_c' | replace('-', '') | replace('_', ' ') }}{{ 'abc' | list }}{{ 'truncate this' | truncate(6) }}": "ab c['a', 'b', 'c']tru...",
    "{{ (1, 2) == (1, 2) }} {{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'b' > 'a' }} {{ [1] == [2] }}": "True True True True False",
}  # fmt: skip
"""Sources, and the texts that transformers makes of them for the conversation SAID."""

HUGE = 2**28
COSTLY = tuple(
    source.replace("HUGE", str(HUGE))
    for source in (
        "{{ 'x' * HUGE }}", "{{ HUGE * 'x' }}", "{{ [1] * (HUGE // 8) }}", "{{ ('x' * 999 * 999) * 300 }}",
        "{{ 'x'.center(HUGE) }}", "{{ 'x'.ljust(HUGE) }}", "{{ 'x'.rjust(HUGE) }}", "{{ '7'.zfill(HUGE) }}",
        "{{ '\\t'.expandtabs(HUGE) }}", "{{ 'x' | center(HUGE) }}", "{{ 'x\ny' | indent(HUGE) }}",
        "{{ '%HUGEd' % 1 }}", "{{ '%*d' % (HUGE, 1) }}", "{{ '%HUGEd' | format(1) }}", "{{ '%.HUGEf' | format(1.5) }}",
        "{{ '{:HUGE}'.format(1) }}", "{{ '{:>{n}}'.format('x', n=HUGE) }}",
        "{{ ('x' * 20000).replace('x', 'y' * 20000) }}", "{{ ('x' * 20000) | replace('x', 'y' * 20000) }}",
        "{{ ('y' * 20000).join(('x' * 20000) | list) }}", "{{ (('x' * 20000) | list) | join('y' * 20000) }}",
        "{{ 2 ** HUGE }}", "{{ (10 ** 999) ** 99999 }}", "{{ 1 * (7 ** 99999) ** 9999 }}",
        "{{ [1] | batch(HUGE // 8, 0) | list }}", "{{ [1] | slice(HUGE // 8) | list }}", "{{ {'a': 1} | tojson(indent=HUGE) }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(t='x') %}{% for i in range(28) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
        "{% set ns = namespace(t='x') %}{% for i in range(28) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
        "{% set ns = namespace(t=[1]) %}{% for i in range(25) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
        "{% for i in range(300) %}{{ 'x' * 999999 }}{% endfor %}", "{{ range(99999) | map('string') | list * 300 }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(26) }}",
        "{% set t = ('x' * 20000) ~ 'y' %}{% for i in range(9999) %}{{ t.strip('x' * 20000) | length }}{% endfor %}",
    )
)  # fmt: skip
"""Sources whose rendering takes 200 MB or 30 million steps at least, unless it is stopped."""

FORBIDDEN = (
    "{{ messages.append(1) }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ messages.__class__.__base__.__subclasses__() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{{ messages[0].update({'content': 'x'}) }}",
    "{{ raise_exception('no') }}",
    "{{ 1 / 0 }}",
    "{{ messages | no_such_filter }}",
    "{{ x.y.z }}",
    "{{ [1] | first(2) }}",
)
"""Sources that reach for more than the conversation, or fail."""


class ChatSourceTests:
    """Tests of templates with the capability `renders_jinja`. `ChatTemplateTests` derives from this class."""

    @pytest.fixture
    def renders_jinja(self, template: type[ChatTemplate]) -> bool:
        """Return whether the template renders the Jinja source of the model, as transformers does."""
        return declared(template, "renders_jinja", False)

    @pytest.fixture
    def of_jinja(self, renders_jinja: bool) -> None:
        """Skip the test if the template does not render the model's source."""
        if not renders_jinja:
            pytest.skip(
                "the template does not have the capability renders_jinja (override the fixture if it has)"
            )

    @pytest.mark.usefixtures("of_jinja")
    def test_a_source_means_what_jinja_says(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        for source, expected in RENDERED.items():
            assert (source, result(template, special_tokens, source)) == (source, expected)

    @pytest.mark.usefixtures("of_jinja")
    def test_a_costly_source_is_stopped(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        """A model's files may come from an untrusted author, and each request runs the source."""
        for source in COSTLY:
            found = result(template, special_tokens, source)
            assert not isinstance(found, str), f"{source} rendered {len(found)} characters"

    @pytest.mark.usefixtures("of_jinja")
    def test_a_large_text_is_never_made(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        """A source that would make a text of 256 MiB at once is refused before it takes 128 MiB."""
        for source in (source for source in COSTLY if str(HUGE) in source):
            with peak_memory() as peaks:
                result(template, special_tokens, source)
            assert max(peaks) < HUGE // 2, f"{source} took {max(peaks)} bytes"

    @pytest.mark.usefixtures("of_jinja")
    def test_a_source_reaches_only_the_conversation(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        for source in FORBIDDEN:
            found = result(template, special_tokens, source)
            assert not isinstance(found, str), f"{source} rendered {found!r}"

    @pytest.mark.usefixtures("of_jinja")
    def test_the_cost_of_renderings_does_not_add_up(
        self, template: type[ChatTemplate], special_tokens: Mapping[str, str]
    ) -> None:
        source = (
            "{% for i in range(20000) %}{% set t = 'x' * i %}{% endfor %}{{ t is defined }}{{ 'y' * 200000 }}"
        )
        built = built_as(template, source, special_tokens)
        assert {len(built.render(SAID)) for _ in range(20)} == {200_005}


def result(
    template: type[ChatTemplate], special_tokens: Mapping[str, str], source: str
) -> str | RequestError | ConfigError:
    """Return the prompt of SAID, or the error that the template raised. Any other exception fails the test."""
    try:
        built: Any = built_as(template, source, special_tokens)
        found: str = built.render(SAID, add_generation_prompt=False)
    except (RequestError, ConfigError) as error:
        return error
    return found
