"""Options of components find the component that they are for."""

from __future__ import annotations

import pytest

from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.option_keys import (
    check_option_keys,
    option_prefix,
    options_of,
    refuse_options_of_others,
)

GIVEN = {
    "policy.x": 1,
    "observer.request-log.path": "a",
    "observer.request_log.fields": "b",
    "observer.x.y": 2,
}


def test_a_component_gets_its_own_options_alone() -> None:
    assert options_of("policy", ["lpm"], GIVEN) == {"x": 1}
    assert options_of("observer", ["request-log"], GIVEN) == {"path": "a", "fields": "b"}
    assert options_of("observer", ["other"], GIVEN) == {}
    assert options_of("observer", ["a.b", "p/a.b"], {"observer.a.b.c": 1, "observer.p/a.b.d": 2}) == {
        "c": 1,
        "d": 2,
    }


def test_prefixes_have_the_name_where_several_are_used() -> None:
    assert (option_prefix("policy", "lpm"), option_prefix("observer", "a")) == ("policy", "observer.a")


@pytest.mark.parametrize("key", ["observer.path", "observer..path", "observer.x."])
def test_options_without_a_name_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=r"does not say which observer it is for; write observer.NAME"):
        check_option_keys({key: "1"})


def test_options_of_components_not_chosen_are_refused() -> None:
    refuse_options_of_others("observer", ["request-log", "x"], GIVEN, "--observers NAME,NAME")
    with pytest.raises(ConfigError, match=r"no observer 'x' is chosen; --observers NAME,NAME chooses them"):
        refuse_options_of_others("observer", ["request-log"], GIVEN, "--observers NAME,NAME")
