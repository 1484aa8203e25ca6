"""Checks that a chat template writes messages whose role OpenAI's API does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from llmfw.core.base.errors import RequestError

ROLES = frozenset({"assistant", "developer", "function", "system", "tool", "user"})


class RoleProbe(msgspec.Struct, frozen=True):
    """A conversation that shows whether a template writes messages of unusual roles.

    Attributes:
        messages: the conversation. In messages with an unusual role, role and content are replaced by test
            texts.
        roles: index of each message with an unusual role → the role.
    """

    messages: list[dict[str, Any]]
    roles: dict[int, str]

    def check(self, text: str) -> None:
        """Raise RequestError if the rendered probe lacks a test text.

        Such a template omits the message, or writes it under another role.

        Args:
            text: the rendered probe.
        """
        text = text.casefold()
        for i, role in self.roles.items():
            if _role_mark(role, i).casefold() not in text or _content_mark(i) not in text:
                raise RequestError(
                    f"messages[{i}].role is {role!r:.100}, which this model's chat template does not know; "
                    f"it must be one of {', '.join(sorted(ROLES))}",
                    param=f"messages[{i}].role",
                )


def role_probe(messages: Sequence[dict[str, Any]], template_source: str) -> RoleProbe | None:
    """Return a probe of the unusual roles in a conversation; None if there are none.

    A role is unusual if OpenAI's API does not have it and the template's source does not contain it in
    quotes.

    Args:
        template_source: source of the template.
    """
    roles = {
        i: message["role"]
        for i, message in enumerate(messages)
        if message["role"] not in ROLES
        and not any(f"{quote}{message['role']}{quote}" in template_source for quote in "'\"")
    }
    if not roles:
        return None
    probed = [
        {**message, "role": _role_mark(roles[i], i), "content": _content_mark(i)} if i in roles else message
        for i, message in enumerate(messages)
    ]
    return RoleProbe(probed, roles)


def _role_mark(role: str, index: int) -> str:
    return f"{role}-role-{index}."


def _content_mark(index: int) -> str:
    return f"content-{index}."
