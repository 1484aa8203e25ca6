"""Options of the commands that send requests to a server, and a client for any OpenAI-compatible server.

httpx is imported when a request is made, so that other commands start without it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Generator
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from llmfw.core.base.errors import LLMFWError
from llmfw.core.base.server_url import server_url
from llmfw.core.base.unreadable import unreadable

if TYPE_CHECKING:
    import ssl

    import httpx

DEFAULT_URL = "http://127.0.0.1:30000"
CONNECT_TIMEOUT_S = 5.0
KEY_VARIABLE = "OPENAI_API_KEY"
READ_TIMEOUT_S = 600.0  # allows for a long queue before the first token
UNAUTHORIZED = 401

_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_Command = Callable[..., Any]


class RemoteError(LLMFWError):
    """The server cannot be reached, or answers with an error.

    Args:
        status: HTTP status of the answer; None if there was no complete answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class UnreachableError(RemoteError):
    """The server gave no complete answer. A retry may succeed."""


class Remote:
    """Client of one OpenAI-compatible server.

    Args:
        url: URL of the server, with or without `http://` and `/v1`; None: DEFAULT_URL.
        api_key: API key, sent as a bearer token; None: requests have no key.
        key_variable: environment variable of the key, for the message of a refused key.

    Raises:
        RemoteError: the URL cannot be that of a server.
    """

    def __init__(self, url: str | None, api_key: str | None, key_variable: str = KEY_VARIABLE) -> None:
        try:
            self.url = server_url(DEFAULT_URL if url is None else url)
        except ValueError as error:
            raise RemoteError(f"--url {error}") from error
        self._is_default = url is None
        self._key_hint = (
            f"{'check' if api_key else 'give'} the key: --api-key KEY, or {key_variable} in the environment"
        )
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The TLS context, created once, because reading the certificates takes longer than most requests."""
        import httpx

        return httpx.create_ssl_context()

    @property
    def flag(self) -> str:
        """Option that names this server in another command, with a leading space; "" for the default URL."""
        return "" if self._is_default else f" --url {self.url}"

    def first_model(self) -> str:
        """Return the name of the first model that the server lists.

        Raises:
            RemoteError: the server cannot be reached, or lists no model.
        """
        with self.requests() as client:
            reply = client.get("/v1/models")
            check(reply)
            try:
                return str(reply.json()["data"][0]["id"])
            except (ValueError, LookupError, TypeError) as error:
                raise RemoteError(f"{self.url}/v1/models is not a list of models; is --url right?") from error

    def stream(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """Send a streaming request; yield choices[0] of each chunk. Closing the generator ends the request.

        Raises:
            RemoteError: the server cannot be reached, rejects the request, or fails during the stream.
        """
        with self.requests() as client, client.stream("POST", path, json={**body, "stream": True}) as reply:
            check(reply)
            for line in reply.iter_lines():
                if not line.startswith("data:"):
                    continue
                data = line[5:].strip()
                if data == "[DONE]":
                    return
                chunk = _object(data)
                if chunk.get("error"):
                    raise RemoteError(_message_of(chunk))
                if chunk.get("choices"):
                    yield chunk["choices"][0]
            raise RemoteError("the server closed the connection before the answer ended; see its log")

    @contextlib.contextmanager
    def requests(self, read_timeout_s: float = READ_TIMEOUT_S) -> Generator[httpx.Client, None, None]:
        """Yield an HTTP client for the server. Converts httpx's exceptions to RemoteErrors.

        The error for status 401 says how to pass an API key.

        Raises:
            UnreachableError: the server gave no complete answer.
            RemoteError: the URL is invalid, or another error of httpx occurred.
        """
        import httpx

        timeout = httpx.Timeout(read_timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            with httpx.Client(
                base_url=self.url, headers=self._headers, timeout=timeout, verify=self._tls
            ) as client:
                yield client
        except RemoteError as error:
            if error.status != UNAUTHORIZED:
                raise
            raise RemoteError(f"{error}; {self._key_hint}", error.status) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = _ERRNO.sub("", str(error)) or type(error).__name__
            raise UnreachableError(
                f"no server answers at {self.url}: {reason}; {self._what_to_do(reason)}"
            ) from error
        except (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError) as error:
            raise UnreachableError(f"{self.url}: {type(error).__name__}: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RemoteError(f"{self.url}: {type(error).__name__}: {error}") from error

    def _what_to_do(self, reason: str) -> str:
        """Return a hint for the user if no server answers."""
        if "WRONG_VERSION_NUMBER" in reason:
            return "it does not speak TLS: write http:// in --url"
        if self._is_default:
            return "start one with 'llmfw serve', or name another by --url"
        if urlsplit(self.url).port is None:
            return "--url names no port, and llmfw's is 30000 unless --port chose another"
        return "is it running, and is --url right?"


def remote_options(command: _Command) -> _Command:
    """Add to a command the options for the server, the model and the sampling parameters."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def server_options(command: _Command) -> _Command:
    """Add the options that choose the server to a command."""
    return URL_OPTION(_API_KEY(command))


def to_body(remote: Remote, options: dict[str, Any]) -> dict[str, Any]:
    """Convert the values of `remote_options` to fields of a request body.

    Raises:
        RemoteError: no model is given, and the server lists none or cannot be reached.
    """
    body = dict(options)
    body["model"] = body["model"] or remote.first_model()
    body["stop"] = list(body["stop"]) or None
    schema = body.pop("json_schema")
    if schema is not None:
        form = {"name": "output", "schema": schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": form}
    return {name: value for name, value in body.items() if value is not None}


def check(reply: httpx.Response) -> None:
    """Raise RemoteError with the server's message if the reply is an error. The reply may be a stream."""
    if reply.is_error:
        reply.read()
        message = f"{reply.status_code} from the server: {_message_of(_object(reply.text))}"
        raise RemoteError(message, reply.status_code)


def _object(text: str) -> dict[str, Any]:
    """Decode a JSON object; return {"message": …} with the text if it is not one."""
    try:
        found = json.loads(text)
    except ValueError:
        found = text
    return found if isinstance(found, dict) else {"message": found}


def _message_of(body: dict[str, Any]) -> str:
    """Return the message in an error body. Supports the formats of various servers."""
    for key in ("error", "detail", "message"):
        found = body.get(key)
        if isinstance(found, dict):
            return _message_of(found)
        if found:
            return " ".join(str(found).split())[:1000]
    return "it does not say why"


def _read_schema(ctx: click.Context, param: click.Parameter, value: Any) -> dict[str, Any] | None:
    """Callback of `--json-schema`: return the JSON object in the file."""
    if value is None:
        return None
    with value:
        try:
            found = json.load(value)
        except (RecursionError, ValueError) as error:
            raise click.BadParameter(f"{value.name!r} holds no JSON: {unreadable(error)}") from error
    if not isinstance(found, dict):
        raise click.BadParameter(f"{value.name!r} holds no JSON object")
    return found


URL_OPTION = click.option(
    "--url",
    "--base-url",
    metavar="URL",
    help=f"URL of the server; http:// may be left out.  [default: {DEFAULT_URL}]",
)
_API_KEY = click.option(
    "--api-key", envvar=KEY_VARIABLE, metavar="KEY", help="API key, sent as a bearer token."
)
_OPTIONS = (
    URL_OPTION,
    click.option("--model", metavar="NAME", help="Model to request.  [default: the first of /v1/models]"),
    _API_KEY,
    click.option(
        "--temperature", type=float, metavar="T", help="Sampling temperature; 0 picks the most likely token."
    ),
    click.option("--max-tokens", type=int, metavar="N", help="Maximum number of tokens in an answer."),
    click.option("--seed", type=int, metavar="N", help="Seed; the same seed gives the same answer."),
    click.option("--stop", multiple=True, metavar="TEXT", help="End the answer at this text; repeatable."),
    click.option(
        "--json-schema",
        type=click.File(encoding="utf-8"),
        callback=_read_schema,
        metavar="FILE",
        help="Answer with JSON of the schema in this file.",
    ),
)
