"""Keeps a faulty scheduling policy from failing requests.

Logs the policy's first fault, and does not call the policy again.

A policy comes from a plugin. It is faulty if it raises, changes its input, or returns an invalid
answer: for example, `order` must return each index exactly once. From then on, llmfw admits requests in order
of arrival, and retracts them in the default order (see `SchedulePolicy`). The time that a policy takes is not
limited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy, deepcopy
from dataclasses import fields, replace
from operator import index
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import force_setattr

from llmfw.core.base.request import Request
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.declared_fields import DeclaredFields, check_declared
from llmfw.core.interfaces.policy import Figures, Floats, Ordering, Places, Running, SchedulePolicy, Waiting
from llmfw.core.plugin.asking import Asked, WrongAnswerError
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.choice import create
from llmfw.core.plugin.registry import Registry

ColumnsT = TypeVar("ColumnsT", Waiting, Running)


class IsolatedPolicy(SchedulePolicy):
    """Wraps a policy so that answers are always valid. After the first fault, uses the default orders.

    Args:
        policy: policy, called until its first fault.
        plugin: description of the plugin for the log: name, package and version.
        name: name by which the policy was chosen.
        calls: record of the component's calls; None: calls are not recorded.
        declared: names of the request fields that the policy may ask for; None: any.

    Attributes:
        name: name by which the policy was chosen.
    """

    def __init__(
        self,
        policy: SchedulePolicy,
        plugin: str,
        name: str,
        calls: ComponentCalls | None = None,
        declared: Collection[str] | None = None,
    ) -> None:
        super().__init__(SchedulePolicy.Options())
        self.name = name
        self._policy = policy
        self._declared = declared
        self._asked = Asked(
            f"the scheduling policy {name!r} of plugin {plugin}",
            "First come, first served replaces it",
            calls,
        )

    @property
    def failure(self) -> str | None:
        """Description of the policy's first fault; None if it has not failed."""
        return self._asked.failure

    @property
    def preempts(self) -> bool:
        """Whether to call the policy's `give_way`."""
        return bool(self._asked.answer(lambda: self._policy.preempts))

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        """Return the policy's order; if the policy has failed, the order of arrival."""

        def ask() -> Ordering:
            return check_order(self._policy.order(self._read_only(waiting), figures), len(waiting))

        return self._asked.answer(ask) or Ordering.by(waiting.arrival)

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        """Return the policy's order of retraction; if the policy has failed, the default order."""

        def ask() -> Places:
            found = self._policy.retraction_order(self._read_only(running), figures)
            return check_places("retraction_order", found, len(running))

        places = self._asked.answer(ask)
        return super().retraction_order(running, figures) if places is None else places

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        """Return the indices of sequences to retract for a waiting one; empty if the policy has failed."""

        def ask() -> Places:
            found = self._policy.give_way(self._read_only(waiting), place, self._read_only(running), figures)
            return check_places("give_way", found, len(running), all_of_them=False)

        places = self._asked.answer(ask)
        return super().give_way(waiting, place, running, figures) if places is None else places

    def _read_only(self, columns: ColumnsT) -> ColumnsT:
        """Return the columns with read-only views of their arrays, copies of the requests and checked names of fields.

        So a policy cannot change the originals; its changes to a copy have no effect.
        """
        whole, field = columns.request, columns.field
        views: dict[str, Any] = {"request": lambda place: _copy(whole(place), self._declared)}
        if (declared := self._declared) is not None:

            def checked(name: str) -> Floats:
                check_declared(name, declared)
                return field(name)

            views["field"] = checked
        for each in fields(columns):
            column = getattr(columns, each.name)
            if isinstance(column, np.ndarray) and column.flags.writeable:
                views[each.name] = column.view()
                views[each.name].flags.writeable = False
        return replace(columns, **views)


def load_policy(registry: Registry, name: str, options: Mapping[str, OptionValue]) -> IsolatedPolicy:
    """Build the policy with this name.

    Args:
        registry: registry that holds the policy.
        name: policy name, as "name" or "plugin/name".
        options: options by "policy.key"; options of other kinds of components are ignored.

    Raises:
        ConfigError: no policy has this name, an option is unknown, or an option has an invalid value.
        ComponentError: the policy cannot be imported or built.
    """
    created = create(registry, "policy", name, options)
    entry = created.entry
    package = f"{entry.distribution} {entry.version}"
    return IsolatedPolicy(
        *(created.component, f"{entry.plugin!r} ({package})", name, registry.ledger.of(entry)),
        declared=registry.request_fields(),
    )


def check_order(found: object, num_waiting: int) -> Ordering:
    """Return a policy's answer as a valid `Ordering`.

    Raises:
        WrongAnswerError: the answer is not an `Ordering`, or has wrong indices or a wrong number of held
            requests.
    """
    if not isinstance(found, Ordering):
        raise WrongAnswerError(f"order() returned {_kind(found)}, not an Ordering")
    try:
        num_held = index(found.num_held)
    except TypeError:
        raise WrongAnswerError(f"order() holds {found.num_held!r} requests, not a whole number") from None
    if not 0 <= num_held <= num_waiting:
        raise WrongAnswerError(f"order() holds {num_held} of {num_waiting} requests")
    return Ordering(check_places("order", found.places, num_waiting), num_held)


def check_places(method: str, found: object, num: int, *, all_of_them: bool = True) -> Places:
    """Return a policy's answer as an array of valid indices.

    Args:
        method: name of the policy's method, for errors.
        found: answer, an array or a list of integers.
        num: number of requests; valid indices are 0 to num - 1.
        all_of_them: whether each index must occur exactly once; if not, at most once.

    Raises:
        WrongAnswerError: the answer has another type, or invalid, missing or repeated indices.
    """
    places = np.asarray(found)
    if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
        raise WrongAnswerError(f"{method}() returned {_kind(found)}, not whole numbers in one dimension")
    if all_of_them and len(places) != num:
        raise WrongAnswerError(f"{method}() returned {len(places)} places for {num} requests")
    if places.size and not (places.min() >= 0 and places.max() < num):
        wrong = places.min() if places.min() < 0 else places.max()
        raise WrongAnswerError(f"{method}() returned the place {wrong} for {num} requests, 0 to {num - 1}")
    places = places.astype(np.intp, copy=False)
    if places.size and (times := np.bincount(places)).max() > 1:
        raise WrongAnswerError(f"{method}() returned the place {times.argmax()} {times.max()} times")
    return places


def _kind(found: object) -> str:
    if isinstance(found, np.ndarray):
        return f"an array of {found.dtype} in {found.ndim} dimensions"
    return f"a {type(found).__name__}" + (
        f" of a {type(found[0]).__name__}" if isinstance(found, list) and found else ""
    )


def _copy(request: Request, declared: Collection[str] | None) -> Request:
    """Return a copy of a request that shares only the prompt; the engine uses its own array of the prompt.

    Args:
        declared: as in `IsolatedPolicy`.
    """
    sampling = copy(request.sampling)
    force_setattr(sampling, "logit_bias", dict(sampling.logit_bias))
    copied = copy(request)
    force_setattr(copied, "sampling", sampling)
    if declared is not None:
        force_setattr(copied, "fields", DeclaredFields(deepcopy(request.fields), declared))
    elif request.fields:
        force_setattr(copied, "fields", deepcopy(request.fields))
    return copied
