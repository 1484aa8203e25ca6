"""The view Play in a real browser: each feature, with the demo model or with a server that echoes."""

from __future__ import annotations

import json

import pytest

from ...doubles.browser import Pipes, Tab
from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving
from .conftest import NARROW, WIDE, OpenTab
from .payloads import FOUND, HARMLESS, PAYLOADS
from .servers import ROUTES

pytestmark = [pytest.mark.long, pytest.mark.torch]

DONE = "document.querySelector('.message.assistant:last-child .footer')"
CAPITALS = "List 3 countries and their capitals."


def say(tab: Tab, text: str) -> None:
    """Send a message, and wait until the model has replied."""
    num = tab.evaluate("document.querySelectorAll('.message').length")
    tab.write(".composer-field", text)
    tab.click(".composer button", "Send")
    tab.wait(f"document.querySelectorAll('.message').length >= {num + 2} && {DONE}")


def setting(tab: Tab, name: str, text: str) -> None:
    """Open the settings, and fill in a field of them."""
    if not tab.evaluate("document.querySelector('.panel').checkVisibility()"):
        tab.click("button", "Settings")
    tab.write(f".panel [name={name}]", text)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_chat_streams_with_figures(
    demo: Served, open_tab: OpenTab, size: tuple[int, int], is_dark: bool
) -> None:
    tab = open_tab(demo.url, size, is_dark=is_dark)
    setting(tab, "temperature", "0")
    if size == NARROW:
        tab.click("button", "Settings")
    say(tab, CAPITALS)
    assert "capitals" in tab.text(".message.assistant .text")
    assert tab.evaluate("document.querySelectorAll('.message.assistant ol li').length") == 3
    figures = tab.text(".figures")
    for part in ("tokens in", "cached", "out", "ms to the first", "tokens/s"):
        assert part in figures
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_keyboard_alone_suffices(demo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(demo.url)
    tab.evaluate("document.querySelector('.composer-field').focus()")
    tab.call("Input.insertText", text=CAPITALS)
    tab.press("Enter", 13)
    tab.wait(DONE)
    assert tab.evaluate("document.activeElement.className") == "composer-field"


def test_another_reply_keeps_the_first(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    say(tab, "first")
    tab.click(".message.assistant button", "Again")
    tab.wait(f"{DONE} && document.body.innerText.includes('2 of 2')")
    tab.click("button[aria-label='Earlier reply']")
    tab.wait("document.body.innerText.includes('1 of 2')")


def test_an_edited_message_starts_anew(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    say(tab, "one")
    say(tab, "two")
    tab.click(".message.user button", "Edit")
    tab.write(".editing textarea", "three")
    tab.click(".editing button", "Send")
    tab.wait("document.querySelectorAll('.message').length === 2")
    tab.wait("document.querySelector('.message.assistant .text')?.innerText === 'three'")


def test_thinking_is_folded(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    say(tab, "<think>secret plan</think>the answer")
    assert tab.text(".message.assistant > .text") == "the answer"
    assert tab.evaluate("document.querySelector('.thinking').open") is False
    assert "secret plan" in tab.evaluate("document.querySelector('.thinking').textContent")


def test_a_tool_s_result_is_sent(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    setting(tab, "tools", json.dumps([{"name": "get_weather", "parameters": {"type": "object"}}]))
    say(tab, '<tool_call>{"name": "get_weather", "arguments": {"city": "<b>Oslo</b>"}}</tool_call>')
    assert "get_weather" in tab.text(".call")
    assert "<b>Oslo</b>" in tab.text(".call pre")
    tab.write(".tool-result", "21 degrees")
    tab.click("button", "Send the result")
    tab.wait(f"document.querySelectorAll('.message').length === 4 && {DONE}")
    assert "21 degrees" in tab.text(".message.tool")
    assert "21 degrees" in tab.text(".message.assistant:last-child .text")  # the echo of the last message


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ('{"age": 3}', "Fits the schema"),
        ('{"age": -1}', "least is 0"),
        ("{}", "age is missing"),
        ("no", "No JSON"),
    ],
)
def test_a_reply_is_held_to_its_schema(echo: Served, open_tab: OpenTab, reply: str, verdict: str) -> None:
    tab = open_tab(echo.url)
    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}
    setting(tab, "schema", json.dumps(schema))
    say(tab, reply)
    assert verdict in tab.text(".fit")


def test_a_wrong_schema_is_told_before_sending(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    num = len(echo.engine.requests)
    setting(tab, "schema", '{"type": ')
    problem = "document.querySelector('.panel [name=schema]').closest('details').querySelector('.problem')"
    assert "JSON" in tab.evaluate(f"{problem}.textContent")
    say(tab, "hello")
    assert "The schema:" in tab.text(".message.assistant .problem")
    assert len(echo.engine.requests) == num


def test_parameters_are_sent(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    for name, value in {"temperature": "0.5", "top_k": "7", "seed": "11", "max_tokens": "3"}.items():
        setting(tab, name, value)
    setting(tab, "stop", "zz\nyy")
    setting(tab, "system", "Be brief.")
    say(tab, "hello")
    sampling = echo.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.top_k, sampling.seed, sampling.max_tokens) == (0.5, 7, 11, 3)
    assert tab.text(".message.assistant .text") == "hel"
    assert "cut off by the limit" in tab.text(".figures")


def test_tokens_have_probabilities_and_alternatives(demo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(demo.url)
    tab.click("button", "Settings")
    tab.click("input[name=tokens]")
    say(tab, CAPITALS)
    num = tab.evaluate("document.querySelectorAll('.token').length")
    assert num > 10
    tab.evaluate("document.querySelector('.token:nth-child(2)').focus()")
    assert tab.evaluate("document.querySelectorAll('.alternatives li').length") >= 5
    assert "%" in tab.text(".alternatives .chosen")


def test_a_text_is_continued(demo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(demo.url)
    setting(tab, "max_tokens", "8")
    tab.click(".panel button", "Continue a text")
    tab.write(".prompt", "The capital of France is")
    tab.click(".text-editor button", "Continue")
    tab.wait("document.querySelector('.text-editor .footer')")
    added = tab.text(".text-editor .text")
    assert added
    tab.click(".text-editor button", "Add to the text")
    assert len(tab.evaluate("document.querySelector('.prompt').value")) > len("The capital of France is")


def test_a_reply_can_be_stopped(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    echo.engine.delay = 0.05
    try:
        tab.write(".composer-field", "a long text " * 20)
        tab.click(".composer button", "Send")
        tab.wait("document.querySelector('.message.assistant .text')")
        tab.click(".composer button", "Stop")
        tab.wait(DONE)
    finally:
        echo.engine.delay = 0
    assert "stopped" in tab.text(".figures")


def test_two_columns_have_settings_of_their_own(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    tab.click("button", "Compare")
    tab.write(".panel section:nth-child(2) [name=max_tokens]", "2")
    tab.write(".composer-field", "hello")
    tab.click(".composer button", "Send")
    tab.wait("document.querySelectorAll('.message.assistant .footer').length === 2")
    texts = tab.evaluate(
        "[...document.querySelectorAll('.message.assistant .text')].map(each => each.innerText)"
    )
    assert texts == ["hello", "he"]


@pytest.mark.parametrize(
    ("name", "words"), [("curl", "-d '{"), ("Python", "extra_body="), ("Node", "new OpenAI(")]
)
def test_a_request_is_shown_as_code(echo: Served, open_tab: OpenTab, name: str, words: str) -> None:
    tab = open_tab(echo.url)
    setting(tab, "top_k", "5")
    say(tab, "it's")
    tab.click(".message.assistant button", "Code")
    tab.click(".snippets .tabs button", name)
    code = tab.text(".snippets pre")
    assert words in code
    assert f"{echo.url}/v1" in code
    assert '"stream"' not in code


def test_conversations_are_kept_exported_and_imported(
    echo: Served, open_tab: OpenTab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tab = open_tab(echo.url)
    say(tab, "remember this")
    tab.open(echo.url)
    tab.click(".shelf .title", "remember this")
    tab.wait("document.querySelectorAll('.message').length === 2")
    exported = tab.evaluate("import('./page/shelf.js').then(shelf => shelf.exported(shelf.kept()))")
    tab.click(".shelf button[aria-label^=Delete]")
    tab.wait("!document.querySelector('.shelf .title')")
    file = tmp_path_factory.mktemp("import") / "conversations.json"
    file.write_text(exported)
    tab.upload(".shelf input[type=file]", file)
    tab.wait("document.querySelector('.shelf .title')?.innerText === 'remember this'")
    file.write_text(
        '{"format": "llmfw-conversations", "conversations": [{"columns": [{"messages": [{"role": "x"}]}]}]}'
    )
    tab.upload(".shelf input[type=file]", file)
    tab.wait("document.querySelector('#notice').innerText.includes('cannot be imported')")


def test_why_a_reply_took_long_is_told(demo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(demo.url)
    say(tab, CAPITALS)
    tab.click(".message.assistant button", "Why so long?")
    tab.wait("document.querySelector('.timeline li')")
    story = tab.text(".timeline")
    assert "was admitted" in story
    assert "ended: stop" in story


def test_payloads_are_shown_as_text(echo: Served, open_tab: OpenTab) -> None:
    assert len(PAYLOADS) > 200
    tab = open_tab(echo.url)
    size, said = 12, ""
    for start in range(0, len(PAYLOADS), size):
        tab.click("button", "New")
        text = "\n\n".join(PAYLOADS[start : start + size])
        say(tab, text)
        said += tab.evaluate("document.querySelector('.message.assistant > .text').textContent")
        assert tab.evaluate(f"{FOUND}(document.querySelector('.messages'))") == HARMLESS
        shown = tab.evaluate("[...document.querySelectorAll('.message.user .text')].at(-1).textContent")
        assert shown == text
    assert said.count("<svg onload=hacked=1>") == said.count("<details open ontoggle=hacked=1>") == 7
    assert not [url for url in tab.requests() if "evil" in url]


def test_each_payload_in_markdown_is_harmless(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    made = (
        "Promise.all([import('./page/markdown.js'), import('./page/calls.js'), import('./page/fit.js'),"
        "import('./page/tokens.js')]).then(([md, calls, fit, tokens]) => {"
        f"const root = document.createElement('div'); for (const text of {json.dumps(PAYLOADS)}) root.append("
        "...md.markdown(text), calls.callsView([{id: text, name: text, arguments: text}], () => {}),"
        "fit.fitView(JSON.stringify(text), {enum: [text]}, true), fit.fitView(text, {[text]: 1}, true),"
        "tokens.tokenView([{token: text, logprob: -1, others: [{token: text, logprob: -2}]}]));"
        f"document.body.append(root); return new Promise(done => setTimeout(() => done({FOUND}(root)), 300)) }})"
    )
    assert tab.evaluate(made) == HARMLESS


def test_a_needed_key_is_asked_for(echo: Served, open_tab: OpenTab) -> None:
    tab = open_tab(echo.url)
    tab.click("button", "Key")
    tab.write("dialog.key input[name=key]", "sesame")
    tab.click("dialog.key button", "Use this key")
    say(tab, "hello")
    kept = "JSON.stringify([{...localStorage}, {...sessionStorage}])"
    assert "sesame" not in tab.evaluate(kept)
    tab.click("button", "Key")
    tab.click("dialog.key input[type=checkbox]")
    tab.click("dialog.key button", "Use this key")
    assert "sesame" in tab.evaluate("JSON.stringify({...sessionStorage})")
    assert "sesame" not in tab.evaluate("JSON.stringify({...localStorage})")
    tab.evaluate("sessionStorage.clear()")


def test_a_server_with_keys_asks_for_one(chromium: Pipes, tmp_path_factory: pytest.TempPathFactory) -> None:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("keyed"))
    with serving(EchoEngine(), tokenizer, plugin_routes=ROUTES, api_key=(("ann", "sesame"),)) as served:
        tab = Tab(chromium, WIDE)
        tab.open(served.url)
        tab.wait("document.querySelector('dialog.key')?.innerText.includes('an API key is needed')")
        tab.write("dialog.key input[name=key]", "sesame")
        tab.click("dialog.key button", "Use this key")
        tab.wait("document.querySelector('.server .model').innerText === 'org/echo'")
        say(tab, "hello")
        assert tab.text(".message.assistant .text") == "hello"
        tab.click("nav a", "Watch")  # the only key is the administrator's
        tab.wait("document.querySelector('select[name=policy]')?.options.length === 2")
        refused = [each for each in tab.problems(served.url) if "401" not in each]
        tab.close()
    assert refused == []


def test_others_than_administrators_see_why(
    chromium: Pipes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("keyed"))
    keys = {"api_key": (("ann", "sesame"),), "admin_api_key": "root"}
    with serving(EchoEngine(), tokenizer, plugin_routes=ROUTES, **keys) as served:
        tab = Tab(chromium, WIDE)
        tab.open(f"{served.url}/#watch")
        tab.write("dialog.key input[name=key]", "sesame")
        tab.click("dialog.key button", "Use this key")
        tab.wait("document.querySelector('.server .model').innerText === 'org/echo'")
        tab.wait("document.querySelector('.state').innerText.includes('needs the admin key')")
        tab.close()
