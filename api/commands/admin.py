"""`llmfw cache`, `llmfw policy` and `llmfw trace`: send an administrator's requests to a running server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

import click

from llmfw.api.settings.click_types import WholeNumber
from llmfw.api.settings.environment import warn_of_unknown
from llmfw.core.base.unreadable import unreadable
from llmfw.core.terminal.tables import Cell, Column, plain, print_table

from .figures import percent, seconds
from .remote import KEY_VARIABLE, URL_OPTION, Remote, check

_Command = Callable[..., Any]
_Reply = dict[str, Any]

_KEY_VARIABLES = ("LLMFW_ADMIN_API_KEY", KEY_VARIABLE)


def admin_options(command: _Command) -> _Command:
    """Add the options that choose the server and the output format to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = (
    URL_OPTION,
    click.option(
        "--api-key",
        envvar=_KEY_VARIABLES,
        metavar="KEY",
        help="API key, sent as a bearer token: the server's --admin-api-key if it has one.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the server's reply as JSON."),
)


def ask(method: str, path: str, url: str | None, api_key: str | None, **options: Any) -> _Reply:
    """Send a request to the server; return the JSON object in the reply.

    Warns of unknown environment variables, because the key's variable may be misspelled.

    Raises:
        RemoteError: the server cannot be reached, or answers with an error.
    """
    warn_of_unknown(click.get_current_context())
    with Remote(url, api_key, " or ".join(_KEY_VARIABLES)).requests() as client:
        reply = client.request(method, path, **options)
        check(reply)
        found: _Reply = reply.json()
        return found


def show(reply: _Reply, as_json: bool, table: Callable[[_Reply], None]) -> None:
    """Print a reply as JSON, or as a table by calling `table`."""
    if as_json:
        click.echo(json.dumps(reply, indent=2))
    else:
        table(reply)


@click.group("cache")
def cache_group() -> None:
    """Show or flush the prefix cache of a running server, and pin prefixes."""


@cache_group.command("show")
@click.option(
    "--most",
    type=WholeNumber(0, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of prefixes.",
)
@admin_options
def show_cache(most: int, as_json: bool, url: str | None, api_key: str | None) -> None:
    """Show the state of the prefix cache, the pins, and the prefixes that save the most tokens."""
    show(ask("GET", "/admin/cache", url, api_key, params={"most": most}), as_json, _print_cache)


@cache_group.command("flush")
@admin_options
def flush_cache(as_json: bool, url: str | None, api_key: str | None) -> None:
    """Evict all prefixes that are neither pinned nor used by running requests."""
    show(ask("POST", "/admin/cache/flush", url, api_key), as_json, _print_cache)


@cache_group.command("pin")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--messages", "is_messages", is_flag=True, help="FILE is JSON: a list of messages, or a chat.")
@click.option(
    "--ttl",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="Lifetime of the pin, as in 90s, 15m, 12h or 7d.",
)
@click.option("--cache-salt", metavar="SALT", help="Pin the prefix for requests with this cache_salt.")
@click.option("--tenant", metavar="NAME", help="Pin the prefix for requests with this API key.")
@click.option(
    "--compute", is_flag=True, help="Compute the prefix now instead of with the first request that has it."
)
@admin_options
def pin_prefix(
    file: Any,
    is_messages: bool,
    ttl: str,
    cache_salt: str | None,
    tenant: str | None,
    compute: bool,
    as_json: bool,
    url: str | None,
    api_key: str | None,
) -> None:
    """Pin the prefix in FILE, so that it stays in the cache; '-' reads standard input.

    FILE contains the text that completion prompts start with. With --messages, it contains the messages that
    chats start with.
    """
    with file:
        text = file.read()
    what = _messages_in(text) if is_messages else {"prompt": text}
    body = {**what, "ttl": ttl, "cache_salt": cache_salt, "tenant": tenant, "compute": compute or None}
    show(ask("POST", "/admin/cache/pins", url, api_key, json=body), as_json, _print_pin)


@cache_group.command("unpin")
@click.argument("pin_id")
@admin_options
def unpin_prefix(pin_id: str, as_json: bool, url: str | None, api_key: str | None) -> None:
    """Remove the pin of a prefix; 'llmfw cache show' lists the pins."""
    reply = ask("DELETE", f"/admin/cache/pins/{quote(pin_id, safe='')}", url, api_key)
    show(reply, as_json, lambda pin: click.echo(f"{plain(pin['id'])} is not pinned any more"))


@click.group("policy")
def policy_group() -> None:
    """Show or change the scheduling policy of a running server."""


@policy_group.command("show")
@admin_options
def show_policy(as_json: bool, url: str | None, api_key: str | None) -> None:
    """Show the current scheduling policy."""
    show(ask("GET", "/admin/policy", url, api_key), as_json, _print_policy)


@policy_group.command("set")
@click.argument("name")
@click.option(
    "-o",
    "--option",
    "pairs",
    multiple=True,
    metavar="policy.KEY=VALUE",
    help="Set an option of the policy; repeatable.",
)
@admin_options
def set_policy(
    name: str, pairs: tuple[str, ...], as_json: bool, url: str | None, api_key: str | None
) -> None:
    """Switch to the scheduling policy NAME. Running and waiting requests continue.

    If there is no such policy, or an option is wrong, the old policy stays.
    """
    body = {"name": name, "options": _options(pairs)}
    show(ask("PUT", "/admin/policy", url, api_key, json=body), as_json, _print_policy)


@click.command("trace", short_help="Show why a request waited, and how much of its prompt was cached.")
@click.argument("request_id", metavar="ID")
@admin_options
def trace_command(request_id: str, as_json: bool, url: str | None, api_key: str | None) -> None:
    """Show why a request waited, and how much of its prompt was cached.

    ID is the "id" in the reply to the request. The server must run with --trace-requests.
    """
    show(ask("GET", f"/admin/requests/{quote(request_id, safe='')}", url, api_key), as_json, _print_traces)


def _messages_in(text: str) -> _Reply:
    """Parse a file's JSON and return the request fields in it, such as messages and tools."""
    try:
        found = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise click.UsageError(f"FILE holds no JSON: {unreadable(error)}") from error
    chat = {"messages": found} if isinstance(found, list) else found
    if not (isinstance(chat, dict) and isinstance(chat.get("messages"), list)):
        raise click.UsageError("FILE holds neither a list of messages nor an object with one as 'messages'")
    return {key: chat[key] for key in ("messages", "tools", "chat_template_kwargs") if key in chat}


def _options(pairs: Iterable[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        key = key.strip().removeprefix("policy.")
        if not equals or not key:
            raise click.UsageError(f"{pair!r} is not an option; write policy.KEY=VALUE")
        if key in options:
            raise click.UsageError(f"{key!r} is given twice: {options[key]!r} and {value!r}")
        options[key] = value
    return options


def _print_cache(reply: _Reply) -> None:
    click.echo(
        f"{reply['num_tokens']:,} tokens in {reply['num_nodes']:,} edges: {reply['num_locked']:,} in use, of these "
        f"{reply['num_pinned']:,} pinned; {reply['num_evicted']:,} evicted so far, by rule {plain(reply['eviction'])}"
    )
    click.echo(
        f"{reply['num_hit']:,} of {reply['num_asked']:,} prompt tokens were found "
        f"({percent(reply['num_hit'], reply['num_asked'])})"
    )
    if reply["max_snapshots"]:
        click.echo(f"{reply['num_snapshots']:,} of {reply['max_snapshots']:,} snapshots of states are kept")
    if reply["pins"]:
        rows = [
            (pin["id"], pin["num_tokens"], pin["num_cached"], seconds(pin["expires_in_s"]))
            for pin in reply["pins"]
        ]
        print_table(("pin", _number("tokens"), _number("cached"), "expires in"), rows)
    if reply["prefixes"]:
        if "replica" in reply["prefixes"][0]:
            rows = [(prefix["replica"], *_prefix_row(prefix)) for prefix in reply["prefixes"]]
            print_table((Column("engine"), *_PREFIX_COLUMNS), rows)
        else:
            print_table(_PREFIX_COLUMNS, map(_prefix_row, reply["prefixes"]))


def _number(title: str, drop: int = 0) -> Column:
    return Column(title, drop=drop, right=True)


_PREFIX_COLUMNS = (
    _number("tokens"),
    _number("own", 1),
    _number("below", 3),
    _number("hits"),
    Column("age", 2),
    _number("users", 4),
    Column("pinned", 5),
    "salt",
    "tenant",
    Column("text", wraps=True),
)


def _prefix_row(prefix: Mapping[str, Any]) -> tuple[Cell, ...]:
    numbers = (prefix[name] for name in ("num_tokens", "own_tokens", "num_below", "hits"))
    last = f" … {prefix['last_text'][-40:]}" if prefix["last_text"] else ""
    return (
        *numbers,
        seconds(prefix["age_s"]),
        prefix["users"],
        "yes" if prefix["pinned"] else "",
        prefix["cache_salt"],
        prefix["tenant"],
        json.dumps(f"{prefix['first_text'][:60]}{last}", ensure_ascii=False),
    )


def _print_pin(pin: _Reply) -> None:
    click.echo(
        f"{plain(pin['id'])}: {pin['num_tokens']:,} tokens, {pin['num_cached']:,} of them cached, "
        f"for {seconds(pin['expires_in_s'])}"
    )


def _print_policy(policy: _Reply) -> None:
    options = ", ".join(f"{key}={value}" for key, value in policy["options"].items())
    click.echo(plain(f"{policy['name']}{' with ' if options else ''}{options}"))
    if policy["failure"]:
        click.echo(plain(f"it failed, and first come, first served goes on: {policy['failure']}"))
    click.echo(plain(f"there are: {', '.join(policy['known'])}"))


def _print_traces(reply: _Reply) -> None:
    for trace in reply["traces"]:
        click.echo(f"{plain(trace['id'])}: {trace['prompt_tokens']:,} prompt tokens")
        print_table(_ENTRY_COLUMNS, map(_entry_row, trace["entries"]))
        if trace["num_left_out"]:
            click.echo(f"{trace['num_left_out']:,} entries in the middle are left out")


_ENTRY_COLUMNS = (
    "at",
    Column("for", 1),
    Column("steps", 2),
    "what",
    _number("tokens", 3),
    _number("ahead", 4),
    Column("why", wraps=True),
)


def _entry_row(entry: Mapping[str, Any]) -> tuple[Cell, ...]:
    first, last = entry.get("first_step", 0), entry.get("last_step", 0)
    lasted = entry.get("until_s", 0.0) - entry["at_s"]
    return (
        seconds(entry["at_s"]),
        seconds(lasted) if lasted > 0 else "",
        f"{first}–{last}" if last > first else str(first),
        entry["kind"],
        entry.get("num_tokens"),
        entry.get("num_ahead"),
        entry.get("reason", ""),
    )
