"""Conformance tests of the `Authenticator` interface."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import pytest

from llmfw.core.interfaces.authenticator import Authenticator, Credentials, Principal, Refusal
from llmfw.core.plugin.authenticator_answer import check_answer

Answer = Principal | Refusal | None
Headers = tuple[tuple[str, str], ...]

MAX_PAUSE_S = 0.05
"""Longest time for which the event loop may stand still, as all requests wait meanwhile."""
ODD_VALUES = (
    "",
    " ",
    "Bearer",
    "Bearer ",
    "bearer  \t",
    "Basic Og==",
    "Bearer null",
    "Bearer a.b.c",
    "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9.",
    "Bearer ..",
    "Bearer \xff\x80\xe9",
    "Bearer a b c",
    "Bearer \x00",
    "\u2028",
    "Bearer " + "[" * 5_000,
    "Bearer " + "=" * 15_000,
    "Bearer " + "." * 15_000,
)


class AuthenticatorTests:
    """Conformance tests of an authenticator.

    Derive from this class and override the fixtures `authenticator` and `valid`. Without `valid`, half of the
    tests are skipped.
    """

    needed: ClassVar = {
        "valid": (Headers, 'headers of a known client, such as [["authorization", "Bearer SECRET"]]')
    }

    @pytest.fixture
    def authenticator(self) -> Authenticator:
        """Return the authenticator under test, built with its options."""
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture authenticator")

    @pytest.fixture
    def valid(self) -> Headers:
        """Return headers that the authenticator accepts; the last header has the secret."""
        pytest.skip("override the fixture valid with headers of a known client")

    def test_header_names_are_lower_case(self, authenticator: Authenticator) -> None:
        names = authenticator.header_names
        assert isinstance(names, tuple)
        assert names
        assert all(name == name.lower() and name.strip() == name != "" for name in names)

    def test_nobody_is_not_recognized(self, authenticator: Authenticator) -> None:
        assert not isinstance(answer_of(authenticator, ()), Principal)

    def test_odd_credentials_are_not_recognized(self, authenticator: Authenticator) -> None:
        for value in ODD_VALUES:
            for name in authenticator.header_names:
                assert not isinstance(answer_of(authenticator, ((name, value),)), Principal)

    def test_random_credentials_are_not_recognized(self, authenticator: Authenticator) -> None:
        rng = random.Random(0)
        for _ in range(200):
            text = "".join(chr(rng.randrange(33, 256)) for _ in range(rng.randrange(200)))
            headers = tuple((name, f"Bearer {text}") for name in authenticator.header_names)
            assert not isinstance(answer_of(authenticator, headers), Principal)

    def test_a_known_client_is_recognized(self, authenticator: Authenticator, valid: Headers) -> None:
        assert {name for name, _ in valid} <= set(authenticator.header_names)
        first, second = (_recognized(answer_of(authenticator, valid)) for _ in range(2))
        assert (first.tenant, first.is_admin) == (second.tenant, second.is_admin)
        assert first.scopes == second.scopes
        assert first.limits == second.limits
        assert first.expires_at is None or first.expires_at > time.time()

    def test_changed_credentials_are_not_recognized(
        self, authenticator: Authenticator, valid: Headers
    ) -> None:
        for changed in _changed(valid):
            assert not isinstance(answer_of(authenticator, changed), Principal), "changed credentials pass"

    def test_repeated_headers_are_not_recognized(self, authenticator: Authenticator, valid: Headers) -> None:
        """Proxies and servers may choose different ones of two headers with the same name."""
        name = valid[-1][0]
        for twice in ((*valid, (name, "Bearer x")), ((name, "Bearer x"), *valid)):
            assert not isinstance(answer_of(authenticator, twice), Principal)

    def test_concurrent_requests_stay_apart(self, authenticator: Authenticator, valid: Headers) -> None:
        wrong = _changed(valid)[0]

        async def ask() -> list[Answer]:
            asked = [valid if i % 2 else wrong for i in range(40)]
            return await asyncio.gather(*(authenticator.authenticate(Credentials(each)) for each in asked))

        for i, answer in enumerate(asyncio.run(ask())):
            assert isinstance(answer, Principal) == bool(i % 2)

    def test_the_event_loop_is_not_blocked(self, authenticator: Authenticator, valid: Headers) -> None:
        assert min(_longest_pause(authenticator, valid) for _ in range(3)) <= MAX_PAUSE_S

    def test_secrets_are_not_shown(
        self,
        authenticator: Authenticator,
        valid: Headers,
        caplog: pytest.LogCaptureFixture,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """The log, the output and refusals must not contain the credentials."""
        caplog.set_level(0)
        shown = ""
        for headers in (valid, *_changed(valid)):
            answer = answer_of(authenticator, headers)
            shown += answer.message if isinstance(answer, Refusal) else ""
        output = capsys.readouterr()
        secret = valid[-1][1].rpartition(" ")[2]
        assert secret[: max(8, len(secret) // 2)] not in shown + caplog.text + output.out + output.err


def answer_of(authenticator: Authenticator, headers: Headers) -> Answer:
    """Ask an authenticator, on an event loop of its own, and check the form of the answer."""
    answer = asyncio.run(_within(authenticator, headers))
    check_answer(answer)
    return answer


async def _within(authenticator: Authenticator, headers: Headers) -> Answer:
    async with asyncio.timeout(5.0):
        return await authenticator.authenticate(Credentials(headers))


def _recognized(answer: Answer) -> Principal:
    assert answer is not None, (
        "the authenticator does not know the headers of `valid`: are they expired, or of another key or issuer?"
    )
    assert isinstance(answer, Principal), f"the authenticator refuses the headers of `valid`: {answer}"
    return answer


def _changed(valid: Headers) -> Sequence[Headers]:
    """Return the headers with an invalid value for the last one."""
    *others, (name, value) = valid
    start, space, secret = value.rpartition(" ")
    middle = len(secret) // 2
    flipped = "A" if secret[middle] != "A" else "B"
    secrets = (
        secret[:-1],
        secret + "x",
        secret + secret,
        secret.swapcase(),
        secret[::-1],
        secret[:middle] + flipped + secret[middle + 1 :],
        "",
    )
    changed = [each for each in secrets if each != secret]
    return [(*others, (name, f"{start}{space}{each}")) for each in changed]


def _longest_pause(authenticator: Authenticator, valid: Headers) -> float:
    """Return the longest time in seconds for which the event loop stood still while a client was asked."""

    async def measure() -> float:
        ticks = [time.perf_counter()]

        async def tick() -> None:
            while True:
                await asyncio.sleep(0)
                ticks.append(time.perf_counter())

        ticking = asyncio.ensure_future(tick())
        await asyncio.sleep(0.01)
        await authenticator.authenticate(Credentials(valid))
        await asyncio.sleep(0.01)
        ticking.cancel()
        return max(after - before for before, after in pairwise(ticks))

    return asyncio.run(measure())
