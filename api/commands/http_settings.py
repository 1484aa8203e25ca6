"""The options of `llmfw serve` that limit what clients may send and hold. Their defaults are those of ServerConfig."""

from __future__ import annotations

import click

from .params import Text
from .setting import SettingOption, setting

HTTP_SETTINGS = (
    click.option(
        "--allow-host",
        "allow_host",
        cls=SettingOption,
        type=Text(),
        metavar="HOST",
        multiple=True,
        unset="this machine, if no key is asked for and the server listens on a loopback address; else any",
        help="A host name that clients may use for the server, in addition to this machine's; repeatable; * allows "
        "any. Default: any, unless the server listens on a loopback address and asks for no key.",
    ),
    click.option(
        "--allow-origin",
        "allow_origin",
        cls=SettingOption,
        type=Text(),
        metavar="ORIGIN",
        multiple=True,
        unset="pages of this machine, if no key is asked for and the server listens on a loopback address; else any",
        help="A site whose pages may send requests, as https://app.example.com; repeatable; * allows any. It sets no "
        "CORS headers. Default: any, unless the server listens on a loopback address and asks for no key.",
    ),
    setting("--max-connections", field="max_connections", help="Most open connections."),
    setting(
        "--max-connections-per-address",
        field="max_connections_per_address",
        help="Most open connections from one IP address.",
    ),
    setting(
        "--max-header-bytes", field="max_header_bytes", help="Largest request line and headers, together."
    ),
    setting("--max-headers", field="max_headers", help="Most header fields of a request."),
    setting("--max-url-bytes", field="max_url_bytes", help="Longest path and query of a request."),
    setting("--header-timeout", field="header_timeout", help="Seconds in which the headers must arrive."),
    setting(
        "--body-timeout",
        field="body_timeout",
        help="Seconds to wait for a body, plus one for each KiB of it that has arrived.",
    ),
    setting(
        "--send-timeout",
        field="send_timeout",
        help="Seconds to wait for a client that does not read its reply, plus one for each KiB that it reads.",
    ),
    setting(
        "--idle-timeout",
        "--timeout-keep-alive",
        field="idle_timeout",
        help="Seconds for which a connection without requests stays open.",
    ),
    setting("--max-body-mb", field="max_body_mb", help="Largest JSON body, in MiB."),
    setting(
        "--max-buffered-mb",
        field="max_buffered_mb",
        help="Most memory for JSON bodies that are being received, of all clients, in MiB.",
    ),
    setting(
        "--min-free-disk-mb",
        field="min_free_disk_mb",
        help="Room on the disk that uploaded files leave free, in MiB; at most a twentieth of the disk.",
    ),
    setting("--max-json-depth", field="max_json_depth", help="Deepest nesting of a JSON body."),
    setting("--max-json-values", field="max_json_values", help="Most values in a JSON body."),
    setting(
        "--max-json-nodes",
        field="max_json_nodes",
        help="Most objects, arrays and member names in a JSON body.",
    ),
    setting("--max-messages", field="max_messages", help="Most messages of a chat, and parts of a message."),
    setting("--max-logit-bias", field="max_logit_bias", help="Most entries of logit_bias."),
)
