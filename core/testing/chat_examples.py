"""Jinja sources of chat templates, with the prompts they give, and sources that have to be stopped or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

SAID = [{"role": "user", "content": " one two\tthree\n"}, {"role": "assistant", "content": "four"}]

RENDERED = {
    "{{ '{0.__class__}'.format(1) }}{{ '{a.__class__}'.format_map({'a': 1}) }}{{ '%s' | attr('__class__') }}": "",
    "{{ 'a' * 3 }}{{ 3 * 'b' }}{{ [1] * 2 }}{{ 2 * 3 }}": "aaabbb[1, 1]6",
    "{{ 1000000 * 1000000 }} {{ 3 * 1.5 }} {{ 9 ** 20 * 7 }}": f"1000000000000 4.5 {9**20 * 7}",
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
        "{{ 'x' | center(width=HUGE) }}", "{{ '%(a)HUGEd' % {'a': 1} }}", "{{ ('%HUGEd' ~ '%s') % (1, 2) }}", "{{ ['x'] | map('center', HUGE) | list }}",
        "{{ ['x'] | map('indent', HUGE, true) | list }}", "{{ 'x' | indent('y' * 900000, true) | indent('y' * 900000, true) }}",
        "{{ '{a:HUGE}'.format_map({'a': 1}) }}", "{{ [1] | tojson(indent='x' * 900000) }}", "{{ [[1]] * 999 | tojson(separators=('x' * 900000, ':')) }}",
        "{{ ('x' * 99999) | replace('', 'y' * 99999) }}", "{{ ('x' * 99999).replace('', 'y' * 99999) }}", "{{ 'y'.join('x' * 999999) * 300 }}",
        "{{ ('%s' * 2000) % (('x' * 200000,) * 2000) }}", "{{ (('%s' * 2000) | format(*(['x' * 200000] * 2000))) }}",
        "{{ ('{0}' * 2000).format('x' * 200000) }}", "{{ (['x' * 200000] * 2000) | join }}", "{{ ''.join(['x' * 200000] * 2000) }}",
        "{% set t = 'x' * 999999 %}{% for i in range(99999) %}{{ 'y' in t }}{% endfor %}",
        "{% set t = [1] * 99999 %}{% for i in range(99999) %}{{ t == t + [] }}{% endfor %}",
        "{% set t = [1] * 99999 %}{% for i in range(99999) %}{{ t | sum }}{% endfor %}",
        "{% set ns = namespace(v=[]) %}{% for i in range(99999) %}{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v == 1 }}",
        "{% set ns = namespace(v=[1]) %}{% for i in range(40) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}{{ ns.v | string }}",
        "{% set ns = namespace(v={}) %}{% for i in range(40) %}{% set ns.v = {'a': ns.v, 'b': ns.v} %}{% endfor %}{{ ns.v | tojson }}",
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
    "{{ messages.pop() }}",
    "{{ messages.clear() }}",
    "{{ messages[0].pop('role') }}",
    "{{ messages[0].setdefault('x', 1) }}",
    "{{ '\\ud800' }}",
    "{{ lipsum() }}",
)
"""Sources that reach for more than the conversation, or fail."""

_BIG = 900_000
MODERATE = {
    "{{ 'x' * 900000 }}": "x" * _BIG,
    "{{ 'x'.center(900000) }}": "x".center(_BIG),
    "{{ 'x'.ljust(900000) }}|": "x".ljust(_BIG) + "|",
    "{{ 'x'.rjust(900000) }}": "x".rjust(_BIG),
    "{{ '7'.zfill(900000) }}": "7".zfill(_BIG),
    "{{ 'x' | center(900000) }}|": "x".center(_BIG) + "|",
    "{{ '\\t'.expandtabs(900000) }}|": " " * _BIG + "|",
    "{{ ('x' * 900).replace('x', 'y' * 1000) }}": "y" * _BIG,
    "{{ ('x' * 900) | replace('x', 'y' * 1000) }}": "y" * _BIG,
    "{{ ('x' * 900000).replace('x', 'y' * 1000, 5) | length }}": "904995",
    "{{ ('y' * 1000).join(('x' * 800) | list) | length }}": "799800",
    "{{ (('x' * 800) | list) | join('y' * 1000) | length }}": "799800",
    "{{ ('x\\n' * 500) | indent(1000, true) | length }}": "501000",
    "{{ '%9999d' % 1 }}": "1".rjust(9999),
    "{{ '%9999d' | format(1) }}": "1".rjust(9999),
    "{{ '{:9999}'.format(1) }}": "1".rjust(9999),
    "{{ '%.50f' | format(0.5) }}": "0.5" + "0" * 49,
    "{{ (('%s' * 100) % (('x' * 5000,) * 100)) | length }}": "500000",
    "{{ 2 ** 30000 > 1 }}": "True",
    "{{ 3 ** 100 }}": str(3**100),
    "{{ [1] | batch(9000, 0) | first | length }}": "9000",
    "{{ [1] | slice(9000) | list | length }}": "9000",
    "{{ [1, [2]] | tojson(indent=40) | length }}": str(len("[\n1,\n[\n2\n]\n]") + 40 * 5),
    "{{ 1.23456789 | round(5) }}": "1.23457",
    "{{ ([1] * 100000) | length }} {{ ([1] * 100000) | sum }}": "100000 100000",
    "{{ range(9999) | map('string') | join | length }}": str(sum(len(str(n)) for n in range(9999))),
    "{% for a in range(1000) %}{% for b in range(1000) %}{% endfor %}{% endfor %}ok": "ok",
    "{% for i in range(900) %}{{ 'x' * 1000 }}{% endfor %}": "x" * _BIG,
    "{% set ns = namespace(t='x') %}{% for i in range(19) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}": "x"
    * 2**19,
    "{% set ns = namespace(t='x') %}{% for i in range(19) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ ns.t }}": "x"
    * 2**19,
    "{% set ns = namespace(v=[]) %}{% for i in range(400) %}{% set ns.v = [ns.v] %}{% endfor %}{{ ns.v }}": "["
    * 401
    + "]" * 401,
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}x{% endif %}{% endmacro %}{{ m(50) }}": "x" * 50,
    "{% set t = 'x' * 9000 %}{% for i in range(900) %}{{ t.strip('x') }}{{ 'y' in t }}{% endfor %}": "False"
    * 900,
    "{% set t = 'x' * 9000 ~ '%s' %}{% for i in range(300) %}{{ (t % i) | length > 9000 }}{% endfor %}": "True"
    * 300,
    "{{ [1, 2, 3] | batch(2, 99999) | list }} {{ [1] | slice(2, 99999) | list }}": "[[1, 2], [3, 99999]] [[1], [99999]]",
    "{{ strftime_now('%%' * 400) }}": "%" * 400,
    "{{ 'a' + 'b' + 'c' + 'd' + 'e' + 'f' + 'g' + 'h' + 'i' + 'j' + 'k' }}": "abcdefghijk",
}
"""Sources of some cost, and their texts: of up to 900,000 characters, 100,000 items, and a million steps."""

SLOW = "{% for a in range(300) %}{% for b in range(1000) %}{% set c = a %}{% endfor %}{% endfor %}{{ messages[0].content }}"
"""A source that takes 300,000 steps, which is too long for `render_briefly`."""

INVALID = (
    "{% if %}",
    "{{ 'a' ",
    "{% for x in %}{% endfor %}",
    "{% endif %}",
    "{{ (" * 5000,
    "{% no_such_tag %}",
    "{% if true %}x",
)
"""Sources that are not Jinja, which the constructor refuses."""

REFUSED = {
    "{{ raise_exception('Roles have to alternate.') }}": "Roles have to alternate.",
    "{{ messages | no_such_filter }}": "no_such_filter",
    "{{ raise_exception('half \\ud800') }}": "half",
}
"""Sources that refuse each conversation, and what the error says."""


class FormExample(NamedTuple):
    """A source, a message, and the text for it.

    Attributes:
        kwargs: further arguments of `render`.
    """

    source: str
    message: Mapping[str, Any]
    expected: str
    kwargs: Mapping[str, Any] = {}


def _user(*texts: str) -> Mapping[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def _call(arguments: str) -> Mapping[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


_TEXT = "{% for m in messages %}{{ m.content }}{% endfor %}"
_PARTS = "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}"
_SET = "{% for m in messages %}{% set c = m['content'] %}{% for p in c | list %}[{{ p.text }}]{% endfor %}{% endfor %}"
_BOTH = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}"
)
_OTHERS = "{% for m in messages %}{% for word in m.content.split() %}{{ word }};{% endfor %}{% endfor %}"
_ARGUMENTS = "{% for c in messages[0].tool_calls %}{{ c.function.arguments }}{% endfor %}"
_TOOL = {"type": "function", "function": {"name": "f"}}
_HI = {"role": "user", "content": "hi"}
FORMS: Sequence[FormExample] = (
    FormExample(_TEXT, _HI, "hi"),
    FormExample(_TEXT, _user("a", "b"), "a\nb"),
    FormExample(_OTHERS, _user("a b", "c"), "a;b;c;"),
    FormExample(_PARTS, _HI, "[hi]"),
    FormExample(_PARTS, _user("a", "b"), "[a][b]"),
    FormExample(_SET, _HI, "[hi]"),
    FormExample(_SET, _user("a"), "[a]"),
    FormExample(_BOTH, _HI, "hi"),
    FormExample(_BOTH, _user("a", "b"), "[a][b]"),
    FormExample("{{ messages[0].content is defined }}", {"role": "assistant", "content": None}, "False"),
    FormExample(
        "{{ messages[0].name is defined }}{{ messages[0].x }}", {**_HI, "name": None, "x": 0}, "False0"
    ),
    FormExample(_ARGUMENTS, _call('{"a": [1, 2.5], "b": "\\u00e9"}'), "{'a': [1, 2.5], 'b': 'é'}"),
    FormExample(_ARGUMENTS, _call('{"a": '), '{"a": '),
    FormExample(_ARGUMENTS, _call("[1]"), "[1]"),
    FormExample(
        _ARGUMENTS + "{{ messages[0].tool_calls[0].function.arguments is string }}",
        _call('{"a": NaN}'),
        '{"a": NaN}True',
    ),
    FormExample(
        _ARGUMENTS + "{{ messages[0].tool_calls[0].function.arguments is string }}",
        _call('{"a": 1e999}'),
        '{"a": 1e999}True',
    ),
    FormExample(
        "{{ messages[0].tool_calls[0].function.arguments is string }}", _call('{"a": "\\ud800"}'), "True"
    ),
    FormExample(
        "{{ messages[0].tool_calls[0].function.arguments is string }}", _call("{" + '"a": {' * 99999), "True"
    ),
    FormExample("{{ tools is none }}", _HI, "True"),
    FormExample("{{ tools | length }}{{ tools[0].function.name }}", _HI, "1f", {"tools": [_TOOL]}),
    FormExample("{{ enable_thinking }}{{ bos_token }}", _HI, "False<s>", {"enable_thinking": False}),
    FormExample("{{ add_generation_prompt }}", _HI, "True", {"add_generation_prompt": True}),
    FormExample(
        _TEXT + "</s>", {"role": "assistant", "content": "It is"}, "It is", {"continue_final_message": True}
    ),
)
"""How messages reach a source: with the content that it reads, without null values, and with parsed arguments."""
