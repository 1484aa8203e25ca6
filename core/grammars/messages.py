"""Messages between the API process, the grammar supervisor and its children.

Messages are encoded with msgpack, in the frames of `core.ipc.wire`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from llmfw.core.base.request import GrammarSpec
from llmfw.core.base.setting_types import OptionValue

TOO_COMPLEX, TIMEOUT = "grammar_too_complex", "grammar_timeout"
"""Error codes of a `GrammarCostError`."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the cost of one grammar, and on the number of grammars that are compiled or queued.

    Attributes:
        deadline_s: CPU time after which a child is killed, in seconds. The limit on wall time is twice as
            long.
        memory_mb: memory that a child may allocate in addition to the backend's own, in MiB.
        workers: maximum number of children for quick grammars; slow grammars have one fewer, but at least
            one.
        quick_s: CPU time after which a grammar counts as slow, in seconds.
        quick_chars: length of a grammar's source, in characters, beyond which the grammar counts as slow from
            the start.
        max_quick, max_slow: maximum number of waiting grammars in each queue; further ones are rejected as
            overload.
        step_ms: maximum CPU time of one step of a compiled grammar, in milliseconds.
        max_prepared: maximum length of a prepared grammar, in characters.
    """

    deadline_s: float = 10.0
    memory_mb: int = 512
    workers: int = 2
    quick_s: float = 0.1
    quick_chars: int = 20_000
    max_quick: int = 512
    max_slow: int = 64
    step_ms: float = 50.0
    max_prepared: int = 4_000_000

    @property
    def longest_s(self) -> float:
        """Seconds after which a child is killed even if it has used little CPU time."""
        return 2 * self.deadline_s


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """First message to the supervisor: how to build the grammar backend.

    Attributes:
        entry: fields of the backend's registry `Entry`.
        options: options of the backend, "kind.key" → value.
        tokenizer: tokenizer as JSON text.
        eos_token_ids, special_tokens: attributes of the tokenizer.
        vocab_size: width of the model's logits.
        limits: limits for all grammars.
        import_path: `sys.path` of the API process, so that the supervisor finds the same plugins.
    """

    entry: dict[str, Any]
    options: dict[str, OptionValue]
    tokenizer: str
    eos_token_ids: tuple[int, ...]
    special_tokens: dict[str, str]
    vocab_size: int
    limits: Limits
    import_path: tuple[str, ...]


class Job(msgspec.Struct, frozen=True, tag="job"):
    """A grammar to compile and try out.

    Attributes:
        id: id, unique among the jobs of one supervisor.
        tenant: tenant of the request; tenants are served in turns.
        spec: the client's grammar.
    """

    id: int
    tenant: str
    spec: GrammarSpec


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancels a job whose client no longer waits for it."""

    id: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Heartbeat request. The supervisor answers with the same message."""


Outcome = Literal["proved", "refused", "failed", "killed", "overloaded"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, tag="verdict"):
    """The answer to a job.

    Attributes:
        id: id of the job. A child's answer has 0; the pool fills in the id.
        outcome: "proved": the grammar passed its trial. "refused": the backend or a limit rejects the
            grammar. "failed": the backend raised an unexpected exception. "killed": the child crashed or was
            killed. "overloaded": too many grammars wait.
        spec: spec for the engine to compile; None unless the outcome is "proved".
        message: reason why there is no spec.
        code: error code for the client, or "".
        detail: traceback of a failure, for the log.
        where: method that failed, as in "accept()", for the log.
        is_last: whether the child must be replaced because its memory has grown.
    """

    id: int = 0
    outcome: Outcome
    spec: GrammarSpec | None = None
    message: str = ""
    code: str = ""
    detail: str = ""
    where: str = ""
    is_last: bool = False


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """Reports that the supervisor has built the backend."""


class Unbuilt(msgspec.Struct, frozen=True, tag="unbuilt"):
    """Reports that the supervisor could not build the backend and will exit.

    Attributes:
        message: reason.
        is_refusal: whether the backend refuses this tokenizer. If so, the backend is not faulty.
    """

    message: str
    is_refusal: bool = False


ToSupervisor = Job | Cancel | Ping
FromSupervisor = Verdict | Ready | Unbuilt | Ping

encode = msgspec.msgpack.Encoder().encode
decode_launch = msgspec.msgpack.Decoder(Launch).decode
decode_request = msgspec.msgpack.Decoder(ToSupervisor).decode
decode_answer = msgspec.msgpack.Decoder(FromSupervisor).decode
decode_verdict = msgspec.msgpack.Decoder(Verdict).decode
