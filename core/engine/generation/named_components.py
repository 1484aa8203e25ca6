"""Finds the components that the settings name, before the weights are read."""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.core.base.config import EngineConfig
from llmfw.core.interfaces.drafter import Drafter
from llmfw.core.interfaces.kv_dtype import check_kv_dtype
from llmfw.core.plugin.choice import Created, choose
from llmfw.core.plugin.registry import Registry
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule, choose_rule, isolated_rule
from llmfw.core.schedule.speculation import choose_drafter

from .attention_choice import check_attention
from .policy_choice import PolicyChoice
from .processors import check_processors


@dataclass(frozen=True, slots=True)
class NamedComponents:
    """Components that need no model.

    Attributes:
        policies: the current schedule policy, and the available ones.
        drafter: component that drafts tokens; None: there are no drafts.
        rule: eviction rule of the prefix cache.
    """

    policies: PolicyChoice
    drafter: Created[Drafter] | None
    rule: IsolatedRule


def find_components(config: EngineConfig, registry: Registry) -> NamedComponents:
    """Look up all names in the settings, before the weights are read, which may take minutes.

    Raises:
        ConfigError: a component or one of its options does not exist.
        ComponentError: a component cannot be imported or built.
    """
    policies = PolicyChoice(registry, config.policy, config.options)
    check_attention(config, registry)
    drafter = choose_drafter(config, registry)
    rule = isolated_rule(registry, choose_rule(registry, config.eviction, config.options))
    check_kv_dtype(config.kv_cache_dtype)
    check_processors(config, registry)
    choose(registry, "token_sampler", config.token_sampler)
    return NamedComponents(policies, drafter, rule)
