"""Holds the current scheduling policy, which the settings choose at first and an administrator can change
later."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from llmfw.core.base.allowed_values import as_text
from llmfw.core.base.control import PolicyInfo
from llmfw.core.base.errors import ConfigError, RequestError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.isolated_policy import IsolatedPolicy, load_policy

logger = logging.getLogger(__name__)

KIND = "policy"


class PolicyChoice:
    """The current scheduling policy, and the available ones.

    Args:
        registry: registry of the policies.
        name: name of the first policy.
        options: "policy.key" → value; options of other components are ignored.

    Attributes:
        policy: current policy.

    Raises:
        ConfigError: the policy or one of the options does not exist.
    """

    def __init__(self, registry: Registry, name: str, options: Mapping[str, OptionValue]) -> None:
        self._registry = registry
        self._name = name
        self._options = {
            key.removeprefix(f"{KIND}."): value
            for key, value in options.items()
            if key.startswith(f"{KIND}.")
        }
        self.policy = self._build(name, self._options)

    def info(self) -> PolicyInfo:
        """Return a description of the current policy."""
        options = {key: as_text(value) for key, value in self._options.items()}
        return PolicyInfo(self._name, options, self.policy.failure, self._registry.names(KIND))

    def change(self, name: str, options: Mapping[str, OptionValue]) -> SchedulePolicy:
        """Make another policy the current one, and return it.

        Raises:
            RequestError: the policy or an option does not exist, or the policy cannot be built; the current
                one stays.
        """
        try:
            self._registry.find(KIND, name)
        except ConfigError as error:
            raise RequestError(str(error), param="name") from error
        try:
            policy = self._build(name, options)
        except ConfigError as error:
            raise RequestError(str(error), param="options") from error
        self.policy, self._name, self._options = policy, name, dict(options)
        logger.info("The policy is %s now, with options %s", name, self._options)
        return policy

    def _build(self, name: str, options: Mapping[str, OptionValue]) -> IsolatedPolicy:
        return load_policy(self._registry, name, {f"{KIND}.{key}": value for key, value in options.items()})
