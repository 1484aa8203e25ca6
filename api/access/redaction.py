"""Hides API keys in paths and request ids before they are logged.

A text is hidden if it is a key of this server, or if it looks like a key. An invalid key that looks like an
ordinary id is not recognized.
"""

from __future__ import annotations

import re
from collections.abc import Callable

HIDDEN = "***"
MAX_WORDS = 20
"""Maximum number of words of a text to show, and of a key to find.

A word is a run of letters and digits, or one other character. The limit exists because each sequence of words
costs a SHA-256 digest.
"""
MAX_TEXT = 2048  # characters

_WORD = re.compile(r"[A-Za-z0-9]+|.", re.DOTALL)
# Scans each run of characters once, so that the time stays linear in the length of a text, even for 64 KiB.
_LIKE_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk|hf|gh[opsu]|github_pat|glpat|gsk|xai|xox[a-z]|pplx|nvapi|key|api[-_]?key|token|secret)[-_=:][A-Za-z0-9_+/=.-]{8,}"
    r"|eyJ[A-Za-z0-9_-]{8,1024}+\.[A-Za-z0-9_.-]+"  # a JSON web token
    r"|AIza[A-Za-z0-9_-]{20,}|AKIA[A-Z0-9]{12,}"
    r"|(?<![_+-])(?=[A-Za-z0-9_+-]*[a-z])(?=[A-Za-z0-9_+-]*[A-Z])(?=[A-Za-z0-9_+-]*[0-9])[A-Za-z0-9_+-]{40,}=*"  # 30 random bytes
    r")"
)


def hide_keys(text: str) -> str:
    """Return a text with all that looks like a key hidden."""
    return _LIKE_KEY.sub(HIDDEN, text)


class Redaction:
    """Hides API keys in a text.

    Args:
        is_key: function that returns whether bytes are a key of this server; None: the server has no keys.
    """

    def __init__(self, is_key: Callable[[bytes], bool] | None = None) -> None:
        self._is_key = is_key

    def __call__(self, text: str) -> str:
        """Return a text with its keys hidden, cut after MAX_WORDS words."""
        words = _WORD.findall(text[:MAX_TEXT])
        hidden = "".join(self._without_known(words[: 2 * MAX_WORDS]))  # a key may start before the cut
        shown = _WORD.findall(hide_keys(hidden))
        cut = "…" if len(shown) > MAX_WORDS or len(words) > 2 * MAX_WORDS or len(text) > MAX_TEXT else ""
        return "".join(shown[:MAX_WORDS]) + cut

    def _without_known(self, words: list[str]) -> list[str]:
        """Return the words, with each sequence of words that forms a key replaced by HIDDEN."""
        if self._is_key is None:
            return words
        start, shown = 0, []
        while start < len(words):
            end = self._end_of_key(words, start)
            shown.append(words[start] if end is None else HIDDEN)
            start = start + 1 if end is None else end
        return shown

    def _end_of_key(self, words: list[str], start: int) -> int | None:
        assert self._is_key is not None
        for end in range(min(len(words), start + MAX_WORDS), start, -1):
            if self._is_key("".join(words[start:end]).encode("utf-8", "surrogatepass")):
                return end
        return None
