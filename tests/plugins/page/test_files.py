"""The page's files: who gets them, how they are sent, and what they may load."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmfw.plugins.page.accepted_encodings import accepts_gzip
from llmfw.plugins.page.routes import ASSETS, FOLDER

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, byte_tokenizer, serving

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
ROUTES = [("page", "llmfw.plugins.page.routes:Page")]
MAX_LINES = 400
MAX_PACKED_BYTES = 150_000
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.js"))


@pytest.fixture(scope="module", params=["", "secret"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server, without a key and with one, which the page's files do not need."""
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    keys = {"api_key": request.param} if request.param else {}
    with serving(EchoEngine(), tokenizer, plugin_routes=ROUTES, **keys) as served:
        yield served


def test_browsers_get_the_page_at_the_root(served: Served) -> None:
    reply = httpx.get(served.url, headers={"accept": BROWSER})
    assert (reply.status_code, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert reply.content == ASSETS["index.html"].plain == httpx.get(f"{served.url}/page").content
    assert "accept" in reply.headers.get_list("vary", split_commas=True)


@pytest.mark.parametrize(
    "accept",
    [
        *(None, "", "*/*", "application/json", "application/json, text/html;q=0.5"),
        *("text/html;q=1e999", "text/html;q=0", "text/html; Q=0.00, application/json;q=0.1"),
    ],
)
def test_other_clients_get_json_at_the_root(served: Served, accept: str | None) -> None:
    reply = httpx.get(served.url, headers={} if accept is None else {"accept": accept})
    assert reply.json()["name"] == "llmfw"
    assert "accept" in reply.headers["vary"]


def test_head_follows_get_at_the_root(served: Served) -> None:
    reply = httpx.head(served.url, headers={"accept": BROWSER})
    assert (reply.status_code, reply.content) == (200, b"")
    assert reply.headers["content-type"].startswith("text/html")


def test_each_file_is_sent_with_its_type(served: Served) -> None:
    for name, asset in ASSETS.items():
        if name != "index.html":
            reply = httpx.get(f"{served.url}/page/{name}")
            assert (reply.status_code, reply.content) == (200, asset.plain)
            assert reply.headers["content-type"].startswith(asset.media_type)
    for path in ("../__init__.py", "%2e%2e%2froutes.py", "nothing.js", "static/app.js"):
        assert httpx.get(f"{served.url}/page/{path}").status_code in (401, 404)


def test_scripts_come_from_this_server_alone(served: Served) -> None:
    policy = httpx.get(f"{served.url}/page").headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert "script" not in policy
    for path in (*FOLDER.glob("*.html"), *FOLDER.glob("*.js"), *FOLDER.glob("*.css")):
        urls = re.findall(r"""["'(](?:https?:)?//[^"')\s]+""", path.read_text("utf-8"))
        assert [url for url in urls if "www.w3.org" not in url] == [], path.name


def test_html_has_no_inline_code() -> None:
    html = ASSETS["index.html"].plain.decode()
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=", html)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_never_parse_html(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")
    sinks = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|setHTML|createContextualFragment"
    )
    assert not re.search(
        sinks + r"|\beval\(|new Function|\.style\s*=[^=]|localStorage\.\w+\(\"llmfw\.key", text
    )


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_files_are_small(name: str) -> None:
    assert len((FOLDER / name).read_text("utf-8").splitlines()) <= MAX_LINES


def test_all_files_together_are_small() -> None:
    assert sum(len(asset.packed) for asset in ASSETS.values()) < MAX_PACKED_BYTES


def test_imports_of_scripts_exist() -> None:
    for name in SCRIPTS:
        for target in re.findall(r'from "\./([^"]+)"', (FOLDER / name).read_text("utf-8")):
            assert target in ASSETS, (name, target)


def test_a_known_file_is_not_sent_again(served: Served) -> None:
    url = f"{served.url}/page/app.js"
    for encoding in ("gzip", "identity"):
        tag = httpx.get(url, headers={"accept-encoding": encoding}).headers["etag"]
        for given in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            reply = httpx.get(url, headers={"accept-encoding": encoding, "if-none-match": given})
            assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)
        assert httpx.get(url, headers={"if-none-match": '"other"'}).status_code == 200


def test_files_are_compressed_for_clients_that_want_it(served: Served) -> None:
    with httpx.stream("GET", f"{served.url}/page/app.js", headers={"accept-encoding": "gzip"}) as reply:
        assert reply.headers["content-encoding"] == "gzip"
        assert gzip.decompress(b"".join(reply.iter_raw())) == ASSETS["app.js"].plain
    plain = httpx.get(f"{served.url}/page/app.js", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("gzip;q=0", False),
        ("*;q=1, gzip;q=0", False),
        ("gzip;q=x", False),
        ("gzip;level=1", False),
        ("identity", False),
    ],
)
def test_accept_encoding_is_read(header: str, accepts: bool) -> None:
    assert accepts_gzip(header) == accepts


def test_a_final_slash_is_taken_away(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=ROUTES) as served:
        reply = httpx.get(f"{served.url}/page/", follow_redirects=True)
    assert (reply.status_code, reply.url.path) == (200, "/page")


def test_the_page_works_below_a_root_path(tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path), plugin_routes=ROUTES, root_path="/llm") as served:
        for base in (f"{served.url}/llm/", f"{served.url}/"):
            assert httpx.get(base, headers={"accept": BROWSER}).text.startswith("<!doctype html>")
            assert httpx.get(f"{base}page/app.js").status_code == 200
