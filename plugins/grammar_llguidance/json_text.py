"""How JSON is written in outputs that a schema constrains: white space and escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# Allow at most one space after a comma or colon. This covers the output of models trained on compact JSON,
# and of models trained on the output of json.dumps. With unbounded white space, a weak model might never stop
# writing spaces. Forbid \uXXXX escapes, so that each key has only one spelling (otherwise an escaped known
# key would pass as an additional one), and each character counts as one.
OPTIONS: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "json_allowed_escapes": 'nrbtf\\"',
}
