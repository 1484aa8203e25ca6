"""`llmfw chat` and `llmfw complete` against a running server, through pipes and on a terminal."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli
from llmfw.api.commands.dialogue import converse
from llmfw.api.commands.remote import DEFAULT_URL, Remote, RemoteError

from ..doubles.echo_engine import EchoEngine
from ..doubles.scripted_server import STOPS_WITHIN_S
from ..doubles.serving import Served, byte_tokenizer, serving, wait_until
from ..doubles.terminal import Terminal

CHUNK = {"choices": [{"index": 0, "delta": {"content": "half"}}]}


def llmfw(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(build_cli(), arguments, input=stdin)


@contextmanager
def answering(status: int, body: str, kind: str = "text/event-stream") -> Iterator[tuple[str, list[Any]]]:
    """Run a server that gives the same answer to everything; yield its URL and the bodies it was sent."""
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(STOPS_WITHIN_S,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_question_is_answered(server: Served, suffix: str) -> None:
    result = llmfw("chat", "--url", server.url + suffix, "Hello 🎉")
    assert (result.exit_code, result.stdout) == (0, "Hello 🎉\n")


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_a_prompt_may_be_piped(server: Served, command: str) -> None:
    assert llmfw(command, "--url", server.url, stdin="two\nlines\n").stdout == "two\nlines\n"


@pytest.mark.parametrize("command", ["chat", "complete"])
def test_an_empty_prompt_is_a_usage_error(server: Served, command: str) -> None:
    result = llmfw(command, "--url", server.url)
    assert result.exit_code == 2
    assert "the prompt is empty" in result.stderr


def test_a_truncated_completion_says_so(server: Served) -> None:
    result = llmfw("complete", "--url", server.url, "--max-tokens", "3", "Hello")
    assert result.stdout == "Hel\n"
    assert "cut off" in result.stderr


def test_the_options_reach_the_engine(server: Served) -> None:
    options = ["--temperature", "0.5", "--max-tokens", "9", "--seed", "7", "--stop", "!", "--stop", "?"]
    assert llmfw("chat", "--url", server.url, *options, "Hi").exit_code == 0
    sampling = server.engine.requests[-1].sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.seed, sampling.stop) == (
        0.5,
        9,
        7,
        ("!", "?"),
    )


def test_messages_are_sent_in_openai_s_form(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"type": "object"}')
    with answering(200, "data: [DONE]\n\n") as (url, bodies):
        options = ["--url", url, "--model", "m", "--system", "Be brief.", "--reasoning-effort", "low"]
        assert llmfw("chat", *options, "--json-schema", str(tmp_path / "s.json"), "Hi").exit_code == 0
    schema = {"name": "output", "schema": {"type": "object"}, "strict": True}
    assert bodies == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            "reasoning_effort": "low",
            "response_format": {"type": "json_schema", "json_schema": schema},
            "stream": True,
        }
    ]


def test_thinking_stays_out_of_a_pipe(server: Served) -> None:
    assert llmfw("chat", "--url", server.url, "<think>Hm.</think>Yes.").stdout == "Yes.\n"


@pytest.mark.parametrize("content", ["{", "[]"])
def test_an_invalid_schema_is_a_usage_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "s.json").write_text(content)
    result = llmfw("chat", "--json-schema", str(tmp_path / "s.json"), "Hi")
    assert result.exit_code == 2
    assert "holds no JSON" in result.stderr


def test_a_server_error_is_one_line(server: Served) -> None:
    result = llmfw("chat", "--url", server.url, "--temperature", "-1", "Hi")
    expected = "Error: 400 from the server: temperature is -1.0; it must be between 0 and 100\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", expected)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            f"data: {json.dumps(CHUNK)}\n\n",
            "the server closed the connection before the answer ended; see its log",
        ),
        ('data: {"error": {"message": "the engine\\nhas ended"}}\n\n', "the engine has ended"),
    ],
)
def test_a_truncated_answer_is_an_error(body: str, message: str) -> None:
    with answering(200, body) as (url, _):
        result = llmfw("chat", "--url", url, "--model", "m", "Hi")
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<h1>Bad\nGateway</h1>", "<h1>Bad Gateway</h1>"),
        ('{"detail": "no"}', "no"),
        ("", "it does not say why"),
    ],
)
def test_errors_in_other_forms_are_shown(body: str, message: str) -> None:
    with answering(502, body, "text/html") as (url, _):
        result = llmfw("complete", "--url", url, "--model", "m", "Hi")
    assert (result.exit_code, result.stderr) == (1, f"Error: 502 from the server: {message}\n")


def test_a_missing_key_is_explained(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), api_key="sesame") as locked:
        assert llmfw("chat", "--url", locked.url, "--api-key", "sesame", "Hi").stdout == "Hi\n"
        refused = llmfw("chat", "--url", locked.url, "Hi").stderr
        assert "401 from the server: an API key is needed" in refused
        assert refused.endswith("give the key: --api-key KEY, or OPENAI_API_KEY in the environment\n")
        wrong = llmfw("chat", "--url", locked.url, "--api-key", "x", "Hi").stderr
        assert wrong.endswith("check the key: --api-key KEY, or OPENAI_API_KEY in the environment\n")
        assert "LLMFW_ADMIN_API_KEY or OPENAI_API_KEY" in llmfw("cache", "show", "--url", locked.url).stderr


def test_an_unreachable_default_server_suggests_serve(
    monkeypatch: pytest.MonkeyPatch, server: Served
) -> None:
    nowhere = "http://127.0.0.1:9"
    monkeypatch.setattr("llmfw.api.commands.remote.DEFAULT_URL", nowhere)
    result = llmfw("chat", "Hi")
    assert result.exit_code == 1
    assert re.search(rf"no server answers at {nowhere}: .*; start one with 'llmfw serve'", result.stderr)
    assert "llmfw serve" not in llmfw("chat", "--url", nowhere, "Hi").stderr


@pytest.mark.parametrize("url", ["", "ftp://x", "http://[", "http://a b"])
def test_an_invalid_url_is_an_error(url: str) -> None:
    with pytest.raises(RemoteError, match=r"--url '.*' is not a URL"):
        Remote(url, None)


def test_the_scheme_of_a_url_is_optional(server: Served) -> None:
    url = server.url.removeprefix("http://")
    assert llmfw("chat", "--url", url, "Hello").stdout == "Hello\n"
    assert llmfw("cache", "show", "--url", url, "--json").exit_code == 0
    assert llmfw("batch", "list", "--url", url).exit_code == 0


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("127.0.0.1:9", r"no server answers at http://127.0.0.1:9: Connection refused; is it running"),
        ("127.0.0.1", r"no server answers at .*names no port, and llmfw's is 30000"),
    ],
)
def test_an_unreachable_server_says_what_to_check(url: str, advice: str) -> None:
    result = llmfw("chat", "--url", url, "Hi")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert re.search(advice, result.stderr)


def test_tls_to_a_plain_server_is_explained(server: Served) -> None:
    result = llmfw("chat", "--url", server.url.replace("http", "https"), "Hi")
    assert "it does not speak TLS: write http:// in --url" in result.stderr


def test_the_default_url_equals_the_server_s() -> None:
    from llmfw.core.base.config import ServerConfig

    config = ServerConfig(served_model_name="m")
    assert f"http://{config.host}:{config.port}" == DEFAULT_URL


def reader(*lines: str | type[BaseException]) -> Callable[[], str]:
    """Return a function that gives line after line, and then the end."""
    left = iter([*lines, EOFError])

    def read() -> str:
        line = next(left)
        if isinstance(line, str):
            return line
        raise line

    return read


def test_a_conversation_continues_after_errors_and_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []

    def answer(text: str) -> None:
        asked.append(text)
        if text == "stop":
            raise KeyboardInterrupt
        if text == "fail":
            raise RemoteError("it failed")

    converse(answer, {}, reader("one", "", KeyboardInterrupt, "stop", "fail", "/what", "two"))
    assert asked == ["one", "stop", "fail", "two"]
    shown = capsys.readouterr().err
    assert "(stopped)" in shown
    assert "Error: it failed" in shown
    assert "There is no command /what." in shown


@pytest.mark.parametrize("end", ["/exit", "/quit", " /quit "])
def test_a_conversation_ends_by_exit_or_quit(end: str) -> None:
    asked: list[str] = []
    converse(asked.append, {}, reader("one", end, "two"))
    assert asked == ["one"]


@pytest.mark.parametrize("words", [("quit",), (" Exit ",), (KeyboardInterrupt, KeyboardInterrupt)])
def test_a_try_to_end_shows_how(words: tuple[Any, ...], capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []
    converse(asked.append, {}, reader(*words, KeyboardInterrupt, "exit the house"))
    assert asked == ["exit the house"]
    assert capsys.readouterr().err.count("/exit or Ctrl-D ends\n") == (2 if len(words) == 2 else 1)


@pytest.mark.slow
def test_terminals_hold_a_conversation_with_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C stops the current answer only."""
    with serving(EchoEngine(delay=0.02), byte_tokenizer(tmp_path)) as slow:
        terminal = Terminal("chat", "--url", slow.url)
        terminal.expect("> ")
        terminal.type("<think>H</think>Yes.\n")
        terminal.expect("\x1b[2mH\x1b[0m")
        terminal.expect("Yes.")
        terminal.expect("> ")
        terminal.type("abc" * 60 + "\n")
        terminal.expect("\n")
        terminal.expect("abc")
        terminal.type("\x03")
        terminal.expect("(stopped)")
        wait_until(lambda: len(slow.engine.aborted) == 1)
        terminal.type("\x04")
        assert terminal.close() == 0


@pytest.mark.slow
def test_model_output_cannot_steer_the_terminal(server: Served) -> None:
    terminal = Terminal("complete", "--url", server.url, "a\x1b]0;title\x07b")
    terminal.expect("a]0;titleb")
    assert terminal.close() == 0
