"""Finds the tokens that start and end a model's thinking.

The engine needs them to apply a grammar only after the thinking, and to end the thinking when its budget is
used up.
"""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import Thinking
from llmfw.core.interfaces.parsers import ReasoningDelta, ReasoningParser
from llmfw.core.interfaces.tokenizer import Tokenizer

ParserClass = type[ReasoningParser]


def is_thinking(parser: ParserClass | None, prompt: str) -> bool:
    """Return whether a prompt ends with the marker that opens the thinking."""
    opening = parser.opening if parser else None
    return opening is not None and prompt.rstrip().endswith(opening)


def thinking_of(
    parser: ParserClass | None,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    budget: int | None,
    budget_param: str = "thinking_budget",
    grammar_param: str | None,
    may_call: bool = False,
) -> Thinking | None:
    """Return the tokens that start and end the thinking in the output; None if they are not needed.

    They are needed only for a grammar or a budget, and not if the prompt has closed the thinking.

    Args:
        parser: parser of the model's reasoning; None if the model does not think.
        prompt: text of the prompt.
        budget: maximum number of tokens of thinking.
        budget_param: request field that set the budget.
        grammar_param: request field that set the grammar; None: there is no grammar.
        may_call: whether the answer may contain tool calls.

    Raises:
        RequestError: the budget is negative, a budget is set but the end of the thinking is unknown, or the
            tokenizer has no tokens for the markers.
    """
    if budget is not None and budget < 0:
        raise RequestError(f"{budget_param} is {budget}; it must be 0 or more", param=budget_param)
    if budget is None and grammar_param is None:
        return None
    if parser is None or parser.closing is None:
        if budget is None:
            return None
        raise RequestError(
            f"{budget_param} needs a reasoning parser that knows where thinking ends: start the server with "
            "--reasoning-parser",
            param=budget_param,
            code="unsupported_parameter",
        )
    messages = parser.messages if may_call else None
    opening, closing = (messages.opening, messages.closing) if messages else (parser.opening, parser.closing)
    if prompt.rstrip().endswith(parser.closing):  # the template closed it: no thinking follows
        return None
    asked = budget_param if budget is not None else grammar_param
    begin, end = _marker_tokens(opening, closing, tokenizer, asked)
    if messages:
        is_open = prompt.endswith(messages.opening)
    else:
        is_open = is_thinking(parser, prompt) or _thinks_first(parser)
    spaces = () if messages else _single_tokens(parser.spaces, closing, end, tokenizer)
    return Thinking(begin=begin, end=end, is_open=is_open, budget=budget, space=spaces)


def _marker_tokens(
    opening: str | None, closing: str, tokenizer: Tokenizer, asked: str | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the token ids of the markers that open and close the thinking; () if nothing opens it.

    Args:
        asked: request field that needs them.

    Raises:
        RequestError: the tokenizer has no tokens for the markers.
    """
    begin = tokenizer.marker(opening) if opening else ()
    end = tokenizer.marker(closing)
    if begin is None or end is None:
        raise RequestError(
            f"{asked} cannot be enforced for a model that may think: {closing!r} is not a token of this tokenizer",
            param=asked,
            code="unsupported_parameter",
        )
    return begin, end


def _single_tokens(
    texts: Sequence[str], before: str, mark: tuple[int, ...], tokenizer: Tokenizer
) -> tuple[int, ...]:
    """Return the token ids of the texts that the tokenizer encodes as a single token after a marker.

    Args:
        before: text of the marker.
        mark: token ids of the marker.
    """
    encoded = [tokenizer.encode(before + text, add_special_tokens=False) for text in texts]
    return tuple(ids[-1] for ids in encoded if tuple(ids[:-1]) == mark)


def _thinks_first(parser: ParserClass) -> bool:
    """Return whether the parser treats an output as thinking if it has no opening marker."""
    if parser.opening is None:
        return True
    fresh = parser()
    return any(isinstance(delta, ReasoningDelta) for delta in (*fresh.feed("x"), *fresh.finish()))
