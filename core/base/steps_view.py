"""The command that asks what the last steps of an engine computed, and the answer."""

from __future__ import annotations

import msgspec


class ViewSteps(msgspec.Struct, frozen=True, tag="view_steps"):
    """Ask what the last steps computed, and what runs and waits now. The answer is a `StepsView`.

    The engine records steps only for two seconds after each of these commands.

    Attributes:
        after: number of a step; only later ones are returned. A number from the future, such as one of an
            engine that has been restarted since, counts as 0.
    """

    after: int = 0


class StepView(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one step computed.

    Attributes:
        number: number of the step, counted from 1 over all steps that were kept.
        at: time of its planning, in seconds since the epoch.
        requests: number of each request in it, as in `RequestView`.
        counts: number of tokens that each request computed in it.
        kinds: kind of each request's tokens in it; 0: the last token and drafts after it; 1: tokens of the
            prompt, or tokens that are computed again after a retraction.
    """

    number: int
    at: float
    requests: list[int]
    counts: list[int]
    kinds: list[int]


class RequestView(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A request in the scheduler, without its text.

    Attributes:
        number: its place in the order of arrival.
        id: id of the request.
        tenant: name of the API key, or the user that the client names; "" if it has neither.
        deferrable: whether it runs only in the capacity that others leave.
        prompt_tokens: number of tokens of its prompt.
        num_tokens: number of its tokens so far, with the prompt.
        num_computed: number of tokens whose keys and values are stored.
        reason: why it waits; "" if it runs.
    """

    number: int
    id: str
    tenant: str
    deferrable: bool
    prompt_tokens: int
    num_tokens: int
    num_computed: int
    reason: str = ""


class StepsView(msgspec.Struct, frozen=True, tag="steps"):
    """The last steps of an engine, and what runs and waits after them.

    Attributes:
        steps: the steps, in order, at most 200.
        running: running requests, at most 1,000.
        waiting: waiting requests in the order in which the policy would admit them, at most 100.
        ended: requests of `steps` that have ended.
        num_waiting: number of all waiting requests.
    """

    steps: list[StepView]
    running: list[RequestView]
    waiting: list[RequestView]
    ended: list[RequestView]
    num_waiting: int
