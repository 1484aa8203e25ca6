"""Converts a stream of OpenAI's chunks to pieces of Ollama's answer, and measures the durations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

Json = dict[str, Any]


class Piece(msgspec.Struct, kw_only=True):
    """A piece of an answer, or several joined pieces."""

    text: str = ""
    thinking: str = ""
    calls: list[Json] = []
    logprobs: list[Json] = []

    def __bool__(self) -> bool:
        return bool(self.text or self.thinking or self.calls or self.logprobs)


class ReplyReader:
    """Reads the chunks of one answer.

    Attributes:
        reason: why the answer ended, as Ollama reports it: "stop" or "length".
    """

    def __init__(self) -> None:
        self.reason = "stop"
        self._started = time.perf_counter_ns()
        self._first = 0
        self._usage: Json = {}
        self._calls: dict[int, Json] = {}

    def feed(self, chunk: Json) -> Piece:
        """Return the piece that a chunk adds to the answer. A tool call is added once it is complete."""
        self._first = self._first or time.perf_counter_ns()
        self._usage = chunk.get("usage") or self._usage
        piece = Piece()
        for choice in chunk["choices"]:
            delta = choice.get("delta") or {"content": choice.get("text")}
            piece.text += delta.get("content") or ""
            piece.thinking += delta.get("reasoning_content") or delta.get("reasoning") or ""
            piece.logprobs += (choice.get("logprobs") or {}).get("content") or ()
            for call in delta.get("tool_calls") or ():
                if call["index"] not in self._calls:
                    self._close_calls(piece)
                self._extend(call)
            if choice.get("finish_reason"):
                self.reason = "length" if choice["finish_reason"] == "length" else "stop"
                self._close_calls(piece)
        return piece

    def figures(self) -> Json:
        """Return token counts, and durations in nanoseconds.

        The duration of the prompt includes the wait in the queue.
        """
        now = time.perf_counter_ns()
        first = self._first or now
        return {
            "total_duration": now - self._started,
            "load_duration": 0,
            "prompt_eval_count": self._usage.get("prompt_tokens", 0),
            "prompt_eval_duration": first - self._started,
            "eval_count": self._usage.get("completion_tokens", 0),
            "eval_duration": max(1, now - first),  # clients divide by this number
        }

    def _extend(self, call: Json) -> None:
        known = self._calls.setdefault(call["index"], {"id": call.get("id"), "name": "", "arguments": ""})
        function = call["function"]
        known["name"] += function.get("name") or ""
        known["arguments"] += function.get("arguments") or ""

    def _close_calls(self, piece: Piece) -> None:
        """Add the calls read so far to a piece.

        If a call was cut off, the incomplete JSON of its arguments is added as text instead.
        """
        for index, call in self._calls.items():
            if call.get("closed"):
                continue
            call["closed"] = True
            try:
                arguments = msgspec.json.decode(call["arguments"] or "{}", type=Json)
            except msgspec.DecodeError:
                piece.text += call["arguments"]
                continue
            function = {"index": index, "name": call["name"], "arguments": arguments}
            piece.calls.append({"id": call["id"], "function": function})


def joined(pieces: Sequence[Piece]) -> Piece:
    """Join pieces into one."""
    return Piece(
        text="".join(piece.text for piece in pieces),
        thinking="".join(piece.thinking for piece in pieces),
        calls=[call for piece in pieces for call in piece.calls],
        logprobs=[each for piece in pieces for each in piece.logprobs],
    )


def chat_fields(piece: Piece) -> Json:
    """Convert a piece of the answer to fields of a reply of /api/chat."""
    message: Json = {"role": "assistant", "content": piece.text}
    if piece.thinking:
        message["thinking"] = piece.thinking
    if piece.calls:
        message["tool_calls"] = piece.calls
    return {"message": message, **_logprobs(piece)}


def generate_fields(piece: Piece) -> Json:
    """Convert a piece of the answer to fields of a reply of /api/generate."""
    thinking = {"thinking": piece.thinking} if piece.thinking else {}
    return {"response": piece.text, **thinking, **_logprobs(piece)}


def head(model: str) -> Json:
    """Return the first fields of each reply and each line."""
    return {"model": model, "created_at": timestamp(datetime.now(UTC))}


def timestamp(moment: datetime) -> str:
    """Return a UTC time in the format of Ollama's replies."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _logprobs(piece: Piece) -> Json:
    return {"logprobs": piece.logprobs} if piece.logprobs else {}
