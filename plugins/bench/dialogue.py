"""What has been said so far, in the form that an API wants it."""

from __future__ import annotations

from typing import Any

from .prompts import Piece


class Dialogue:
    """A prompt that grows turn by turn: one text (or list of ids) for completions, messages for chat.

    Args:
        api: "completions" or "chat".
    """

    def __init__(self, api: str) -> None:
        self._chat = api == "chat"
        self._pieces: list[Piece] = []
        self._messages: list[dict[str, Piece]] = []

    def ask(self, *pieces: Piece) -> dict[str, Any]:
        """Add the user's next words and return the fields of a request's body that hold all so far."""
        if self._chat:
            self._messages.append({"role": "user", "content": _join(pieces)})
            return {"messages": list(self._messages)}
        self._pieces.extend(pieces)
        return {"prompt": _join(self._pieces)}

    def answer(self, text: str) -> None:
        """Add the model's reply."""
        if self._chat:
            self._messages.append({"role": "assistant", "content": text})
        else:
            self._pieces.append(text)


def _join(pieces: list[Piece] | tuple[Piece, ...]) -> Piece:
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(piece for piece in pieces if isinstance(piece, str))
    return [token for piece in pieces if not isinstance(piece, str) for token in piece]
