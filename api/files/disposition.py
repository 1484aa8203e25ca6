"""Reads file names from the `content-disposition` headers of forms, and writes such headers for downloads.

Clients escape `filename` differently. Browsers replace quotes and line breaks by percent codes, and leave
backslashes alone. httpx and older clients double backslashes. curl puts a backslash before quotes. All these
escapes are decoded, so a name that contains such a sequence literally is changed. Names in `filename*` (RFC
5987) are always exact.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*("(?:\\.|[^"\\])*"(?=\s*(?:;|$))|"[^"]*"|[^;"]*)', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])')
_PERCENT = re.compile(r"%(?:0[0-9A-Fa-f]|1[0-9A-Fa-f]|22)")
_PLAIN = re.compile(r"[^A-Za-z0-9 ._()+,=@~-]")
_CHARSETS = ("utf-8", "iso-8859-1")


def read_parameters(disposition: str) -> dict[str, str]:
    """Return the parameters of a form part's header by name, such as `name` and `filename`.

    Args:
        disposition: value of the header.
    """
    found = {name.lower(): _unquoted(value) for name, value in _PARAMETER.findall(disposition)}
    extended = _extended(found.pop("filename*", ""))
    return found if extended is None else found | {"filename": extended}


def write_disposition(filename: str) -> str:
    """Return a download's header: it has the file's exact name, and a plain ASCII name for old clients."""
    plain = _PLAIN.sub("_", filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='', errors='replace')}"


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _ESCAPED.sub(r"\1", value[1:-1])
    return _PERCENT.sub(lambda match: unquote(match[0]), value)


def _extended(value: str) -> str | None:
    """Return the decoded value of an RFC 5987 parameter; None if it is not a valid one."""
    charset, _, rest = value.partition("'")
    _, mark, text = rest.partition("'")
    if not mark or charset.lower() not in _CHARSETS:
        return None
    try:
        return unquote(text, charset, errors="strict")
    except UnicodeDecodeError:
        return None
