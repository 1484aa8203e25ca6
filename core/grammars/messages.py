"""Messages between the API process, the grammar supervisor and its children: msgpack in the frames of `core.ipc.wire`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from llmfw.core.base.config import OptionValue
from llmfw.core.base.request import GrammarSpec

TOO_COMPLEX, TIMEOUT = "grammar_too_complex", "grammar_timeout"
"""Codes of a `GrammarCostError`."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one grammar's cost, and of the number of grammars that are compiled and queued.

    Attributes:
        deadline_s: seconds of CPU time after which a child is killed; it is also killed after twice that in wall time.
        memory_mb: MiB that a child may allocate beyond the memory of the backend itself.
        workers: maximum number of children for quick grammars; slow grammars have one fewer, but at least one.
        quick_s: seconds of CPU time after which a grammar counts as slow.
        quick_chars: length of a source beyond which a grammar counts as slow from the start.
        max_quick, max_slow: maximum number of waiting grammars in each queue; further ones are refused as overload.
        step_ms: CPU milliseconds that a step of the compiled grammar may take.
        max_prepared: maximum number of characters of a prepared grammar.
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
    """First message that the supervisor reads from its socket.

    Attributes:
        entry: fields of the backend's `Entry`.
        options: options of the backend, as "kind.key" → value.
        tokenizer: tokenizer as JSON text.
        eos_token_ids, special_tokens: attributes of the tokenizer.
        vocab_size: width of the model's logits.
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
    """A grammar to prove.

    Attributes:
        id: id, unique among the jobs of one supervisor.
        tenant: tenant that it belongs to; tenants are served in turns.
    """

    id: int
    tenant: str
    spec: GrammarSpec


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Cancels a job, whose client no longer waits for it."""

    id: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Asks the supervisor for a sign of life. It answers with the same message."""


Outcome = Literal["proved", "refused", "failed", "killed", "overloaded"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, tag="verdict"):
    """The answer to a job.

    Attributes:
        id: id of the job; 0 in a child's answer, since a child does not know it.
        outcome: "proved": `spec` is what the engine should compile. "refused": the backend or a limit refuses the
            grammar. "failed": the backend raised something unexpected. "killed": the child crashed or was killed.
            "overloaded": too many grammars wait.
        message: reason why there is no spec.
        code: machine-readable reason for the client, or "".
        detail: traceback of a failure, for the log.
        is_last: whether the child has grown, and takes no further job.
    """

    id: int = 0
    outcome: Outcome
    spec: GrammarSpec | None = None
    message: str = ""
    code: str = ""
    detail: str = ""
    is_last: bool = False


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The supervisor has built the backend."""


class Unbuilt(msgspec.Struct, frozen=True, tag="unbuilt"):
    """The supervisor cannot build the backend, and ends."""

    message: str


ToSupervisor = Job | Cancel | Ping
FromSupervisor = Verdict | Ready | Unbuilt | Ping

encode = msgspec.msgpack.Encoder().encode
decode_launch = msgspec.msgpack.Decoder(Launch).decode
decode_request = msgspec.msgpack.Decoder(ToSupervisor).decode
decode_answer = msgspec.msgpack.Decoder(FromSupervisor).decode
decode_verdict = msgspec.msgpack.Decoder(Verdict).decode
