"""The bundled scheduling policies, and the request field `deadline_ms`.

The policies are `lpm` (default), `fcfs`, `priority`, `fair`, `sjf` and `edf`.
"""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_schedule_policies(register: Register) -> None:
    register(
        "lpm",
        "llmfw.plugins.policies.lpm:LPM",
        summary="longest cached prefix first, with a bound on overtaking",
    )
    register("fcfs", "llmfw.plugins.policies.fcfs:FCFS", summary="first come, first served")
    register(
        "priority",
        "llmfw.plugins.policies.priority:Priority",
        summary="largest priority first, with preemption",
    )
    register(
        "fair", "llmfw.plugins.policies.fair:Fair", summary="the tenant that has had the fewest tokens first"
    )
    register(
        "sjf",
        "llmfw.plugins.policies.sjf:SJF",
        summary="fewest tokens to compute first, with a bound on overtaking",
    )
    register(
        "edf",
        "llmfw.plugins.policies.edf:EDF",
        summary="earliest deadline first, with preemption",
        needs_fields=("deadline_ms",),
    )


@hookimpl
def register_request_fields(register: Register) -> None:
    register(
        "deadline_ms",
        "llmfw.plugins.policies.deadline:Deadline",
        summary="milliseconds in which the client wants the whole answer",
    )
