"""The spelling of JSON in output that a schema constrains."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# One space after a comma or colon, or none: what models write by themselves, whether they were trained on compact
# JSON or on json.dumps's. White space without a bound would be a trap for a weak model, which may never leave it.
# Characters are written as they are, never as \uXXXX: so each key has one spelling, which keeps an additional key
# from being a known one in disguise, and each character counts as one.
OPTIONS: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "json_allowed_escapes": 'nrbtf\\"',
}
