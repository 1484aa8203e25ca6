import base64
import json
import time

import pytest

from llmfw.core import ConfigError, Principal, Refusal, TenantLimits
from llmfw.core.testing import AuthenticatorTests
from llmfw.core.testing.authenticators import answer_of

jwt = pytest.importorskip("jwt")
from llmfw_jwt.authenticator import JsonWebTokens

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def known(tmp_path):
    return made(tmp_path)


def made(tmp_path, secret=SECRET, **options):
    path = tmp_path / "key"
    path.write_text(secret)
    options = {"key_file": str(path), "audience": "llmfw", "issuer": "https://id.example"} | options
    return JsonWebTokens(JsonWebTokens.Options(**options))


def token(secret=SECRET, algorithm="HS256", **claims):
    whole = {"sub": "alice", "aud": "llmfw", "iss": "https://id.example", "exp": time.time() + 60} | claims
    present = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(present, secret, algorithm)


def sent(token):
    return (("authorization", f"Bearer {token}"),)


class TestJsonWebTokens(AuthenticatorTests):
    @pytest.fixture
    def authenticator(self, known):
        return known

    @pytest.fixture
    def valid(self):
        return sent(token())


def test_a_valid_token_names_the_tenant(known):
    answer = answer_of(known, sent(token()))
    assert isinstance(answer, Principal)
    assert (answer.tenant, answer.is_admin) == ("alice", False)
    assert answer.expires_at <= time.time() + 66


def test_a_far_expiry_is_kept_for_a_while(known):
    answer = answer_of(known, sent(token(exp=10**400)))
    assert isinstance(answer, Principal)
    assert answer.expires_at < time.time() + 10**6


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1_000_000_000},
        {"exp": float("inf")},
        {"exp": None},
        {"aud": "other"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "a b"},
        {"nbf": time.time() + 600},
        {"secret": "f" * 32},
        {"algorithm": "HS512"},
    ],
)
def test_other_tokens_are_refused(known, claims):
    assert isinstance(answer_of(known, sent(token(**claims))), Refusal)


def test_unsigned_tokens_are_refused(known):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    claims = token().split(".")[1]
    for algorithm in ("none", "None", "NONE", "RS256"):
        forged = f"{part({'alg': algorithm, 'typ': 'JWT'})}.{claims}."
        assert isinstance(answer_of(known, sent(forged)), Refusal)


def test_administrators_need_their_claim(tmp_path):
    claimed = sent(token(admin=True))
    assert answer_of(made(tmp_path), claimed).tenant == "alice"
    known = made(tmp_path, admin_claim="admin")
    assert answer_of(known, claimed).is_admin
    assert not answer_of(known, sent(token(admin="true"))).is_admin


@pytest.mark.parametrize(
    ("claimed", "scopes"),
    [
        ("openid generate embed", {"generate", "embed"}),
        ("openid admin Generate", set()),
        ("models\tmetrics", set()),
        ("", set()),
    ],
)
def test_scopes_come_from_their_claim(tmp_path, claimed, scopes):
    sent_scopes = sent(token(scope=claimed))
    assert answer_of(made(tmp_path), sent_scopes).scopes is None
    answer = answer_of(made(tmp_path, scope_claim="scope"), sent_scopes)
    assert (answer.tenant, answer.scopes) == ("alice", frozenset(scopes))


@pytest.mark.parametrize("claimed", [None, ["generate"], {"generate": True}, 1])
def test_a_scope_claim_must_be_text(tmp_path, claimed):
    answer = answer_of(made(tmp_path, scope_claim="scope"), sent(token(scope=claimed)))
    assert isinstance(answer, Refusal)
    assert "'scope'" in answer.message


def test_administrators_have_all_scopes(tmp_path):
    known = made(tmp_path, scope_claim="scope", admin_claim="admin")
    answer = answer_of(known, sent(token(admin=True, scope="models")))
    assert answer.is_admin
    assert answer.scopes is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"secret": "short"}, "not a secret of 32 bytes"),
        ({"secret": "-----BEGIN PUBLIC KEY-----\n" + "x" * 40}, "algorithm=RS256"),
        ({"algorithm": "RS256"}, "not a public key"),
        ({"audience": ""}, "jwt.audience"),
        ({"key_file": "/no/such"}, "cannot read"),
    ],
)
def test_what_cannot_work_ends_the_start(tmp_path, options, why):
    with pytest.raises(ConfigError, match=why):
        made(tmp_path, **options)


def test_public_keys_verify_tokens(tmp_path):
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    private = rsa.generate_private_key(65537, 2048)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    known = made(tmp_path, public.decode(), algorithm="RS256")
    assert answer_of(known, sent(token(private, "RS256"))).tenant == "alice"
    assert isinstance(answer_of(known, sent(token())), Refusal)


@pytest.mark.parametrize(
    ("claimed", "limits"),
    [
        (
            {"requests_per_minute": 60, "max_requests": 4},
            TenantLimits(requests_per_minute=60, max_requests=4),
        ),
        ({}, TenantLimits()),
        (None, None),
    ],
)
def test_a_claim_gives_the_tenant_limits(tmp_path, claimed, limits):
    answer = answer_of(made(tmp_path, limits_claim="quota"), sent(token(quota=claimed)))
    assert isinstance(answer, Principal)
    assert answer.limits == limits


@pytest.mark.parametrize(
    "claimed", [60, [], {"per_hour": 1}, *({"max_requests": n} for n in (0, -1, True, 1.5, "4", 10**13))]
)
def test_a_claim_of_other_limits_is_refused(tmp_path, claimed):
    answer = answer_of(made(tmp_path, limits_claim="quota"), sent(token(quota=claimed)))
    assert isinstance(answer, Refusal)
    assert "'quota'" in answer.message


def test_limits_are_not_read_without_the_option(known):
    assert answer_of(known, sent(token(limits={"max_requests": 1}))).limits is None
