"""Conformance tests of the `Authenticator` interface."""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import ClassVar

import msgspec
import pytest

from llmfw.core.interfaces.authenticator import Authenticator, Credentials, Principal, Refusal
from llmfw.core.plugin.authenticator_answer import check_answer

from .moved_clock import moved_clock

Answer = Principal | Refusal | None
Headers = tuple[tuple[str, str], ...]

MAX_PAUSE_S = 0.005
"""Longest time for which the event loop may stand still in the best of 20 calls, as all requests wait meanwhile."""

MAX_KEPT = 1_500
"""Blocks of memory that an authenticator may keep of 5,000 requests; one that keeps each has more than 5,000."""

CLOCK_STEPS_S = (1.0, 3600.0, 86_400.0, 31 * 86_400.0, 366 * 86_400.0, 20 * 366 * 86_400.0)
"""Times after the first expiry for which a client is asked again."""
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

    @pytest.fixture
    def reads_local_clock(self) -> bool:
        """Return whether this process's clock decides what has expired, not the clock of another server."""
        return True

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
        first, second = _principal_of(authenticator, valid), _principal_of(authenticator, valid)
        assert _whole(first) == _whole(second)
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
        """A request has the same principal, with tenant, rights and limits, alone and among forged ones."""
        alone = _whole(_principal_of(authenticator, valid))
        forged = (*_changed(valid), *_spoiled(valid))
        pairs = [pair for wrong in forged for pair in ([wrong, valid], [valid, wrong])]
        for asked in (*pairs, [each for pair in pairs for each in pair]):
            for headers, answer in zip(asked, asyncio.run(_ask(authenticator, asked)), strict=True):
                if headers is valid:
                    assert isinstance(answer, Principal), "a known client is refused among other requests"
                    assert _whole(answer) == alone, "the principal of another request"
                else:
                    assert not isinstance(answer, Principal), "changed credentials pass"

    def test_answers_hold_until_they_expire(self, authenticator: Authenticator, valid: Headers) -> None:
        """The server keeps an answer until `expires_at`. The clock of this process is moved to just before."""
        first = _principal_of(authenticator, valid)
        if first.expires_at is None:
            pytest.skip("the principal has no expires_at")
        left = first.expires_at - time.time()
        with moved_clock(left - min(1.0, left / 10)):
            answer = answer_of(authenticator, valid)
        assert isinstance(answer, Principal), (
            f"refused just before expires_at ({left:.0f} s from now), until which the server keeps the first answer"
        )

    def test_expired_credentials_are_not_recognized(
        self, authenticator: Authenticator, valid: Headers, reads_local_clock: bool
    ) -> None:
        """The clock is moved to after `expires_at`, by a second, an hour, a day, a month, one and 20 years."""
        first = _principal_of(authenticator, valid)
        if first.expires_at is None or not reads_local_clock:
            pytest.skip("the principal has no expires_at, or the clock of another server decides")
        left = first.expires_at - time.time()
        for step in CLOCK_STEPS_S:
            with moved_clock(left + step):
                answer, now = answer_of(authenticator, valid), time.time()
            past = answer.expires_at if isinstance(answer, Principal) else None
            assert past is None or past >= now - 1, (
                f"{step:.0f} s after expires_at, a Principal that expired {now - past:.0f} s ago: it needs to be refused"
            )

    def test_the_event_loop_is_not_blocked(self, authenticator: Authenticator, valid: Headers) -> None:
        pause = min(_longest_pause(authenticator, valid) for _ in range(20))
        assert pause <= MAX_PAUSE_S, f"{1e3 * pause:.0f} ms in each call"

    def test_credentials_are_not_kept(self, authenticator: Authenticator, valid: Headers) -> None:
        """Counts memory after thousands of requests with other credentials each."""
        counts = []
        for turn in range(3):
            for first in range(5_000 * turn, 5_000 * (turn + 1), 100):
                asyncio.run(_ask(authenticator, _others(valid, range(first, first + 100))))
            gc.collect()
            counts.append(sys.getallocatedblocks())
        kept = counts[2] - counts[1]
        assert kept <= MAX_KEPT, f"{kept} blocks of memory more after 5,000 further requests"

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


def _principal_of(authenticator: Authenticator, valid: Headers) -> Principal:
    """Return the principal of known headers."""
    return _recognized(answer_of(authenticator, valid))


def _whole(principal: Principal) -> Principal:
    """Return a principal without its time of expiry, which may follow the clock."""
    return msgspec.structs.replace(principal, expires_at=None)


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


def _spoiled(valid: Headers) -> Iterator[Headers]:
    """Yield the headers with a single other character in the secret, at up to 200 places.

    Many of them can still be read, such as a token whose signed part names another client. The last character
    stays: base64 may leave bits of it unused.
    """
    *others, (name, value) = valid
    start = len(value) - len(value.rpartition(" ")[2])
    places = range(start, len(value) - 1, max(1, (len(value) - start) // 200))
    for place in places:
        following = chr(ord(value[place]) + 1)
        if value[place].isalnum() and following.isalnum():
            yield (*others, (name, value[:place] + following + value[place + 1 :]))


def _others(valid: Headers, numbers: range) -> list[Headers]:
    """Return the headers with an invalid secret for each number."""
    *others, (name, value) = valid
    return [(*others, (name, f"{value}{number}")) for number in numbers]


async def _ask(authenticator: Authenticator, asked: Sequence[Headers]) -> list[Answer]:
    """Return the answers to requests that arrive together."""
    return await asyncio.gather(*(authenticator.authenticate(Credentials(each)) for each in asked))


def _longest_pause(authenticator: Authenticator, valid: Headers) -> float:
    """Return the longest time in seconds for which the event loop stood still while a client was asked."""

    async def measure() -> float:
        ticks = [time.perf_counter()]

        async def tick() -> None:
            while True:
                await asyncio.sleep(0)
                ticks.append(time.perf_counter())

        ticking = asyncio.ensure_future(tick())
        await asyncio.sleep(0)
        await authenticator.authenticate(Credentials(valid))
        await asyncio.sleep(0)
        ticking.cancel()
        return max(after - before for before, after in pairwise(ticks))

    return asyncio.run(measure())
