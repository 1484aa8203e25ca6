"""Chromium without a window, driven by its DevTools protocol over pipes. Needs no package and no network."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""Path of the browser; None: there is none on this machine."""

FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--no-default-browser-check"),
)
TIMEOUT_S = 30.0


class Pipes:
    """The two pipes to a browser. Each message is JSON that a zero byte ends."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command; return its result. Events that come meanwhile are kept in `events`."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write_fd, data) :]
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            found = self._receive(deadline)
            assert found is not None, f"no answer to {method}"
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def _receive(self, deadline: float) -> dict[str, Any] | None:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read_fd], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._read_fd, 2**20) if ready else b""
            if not data:
                return None
            self._rest += data
        found, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(found)
        return message


class Tab:
    """A tab of the browser.

    Args:
        size: width and height in pixels.
        is_dark: whether pages should be dark.
    """

    def __init__(self, pipes: Pipes, size: tuple[int, int], *, is_dark: bool = False) -> None:
        self._pipes = pipes
        self._target = pipes.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = pipes.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")
        width, height = size
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command to the tab; return its result."""
        return self._pipes.call(method, self._session, **params)

    def open(self, url: str) -> None:
        """Open a page and wait until its scripts have run."""
        assert "errorText" not in self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript, awaited."""
        done = self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in done, f"{expression}: {done['exceptionDetails']}"
        return done["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + TIMEOUT_S
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < deadline, (
                f"{expression} never came true; the page: {self.text()[:2000]}"
            )
            time.sleep(0.05)

    def text(self, selector: str = "body") -> str:
        """Return the text that an element shows; "" if there is none."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str, text: str = "") -> None:
        """Click the first visible element that a selector finds and that has a text."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".find(each => each.checkVisibility() && each.textContent.includes({json.dumps(text)}))"
        )
        self.wait(found)
        self.evaluate(f"{found}.click()")

    def write(self, selector: str, text: str) -> None:
        """Replace the text of a field, as typing does."""
        field = f"document.querySelector({json.dumps(selector)})"
        self.wait(field)
        self.evaluate(
            f"(field => {{ field.focus(); field.value = {json.dumps(text)}; "
            "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {bubbles: true})); })"
            f"({field})"
        )

    def press(self, key: str, code: int) -> None:
        """Press and release a key.

        Args:
            code: Windows' code of the key, such as 13 for Enter.
        """
        text = "\r" if key == "Enter" else ""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text
            )

    def upload(self, selector: str, *paths: Path) -> None:
        """Choose files in a file input."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def screenshot(self, path: Path) -> None:
        """Write a picture of what the tab shows."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def requests(self) -> list[str]:
        """Return the URLs that the tab has requested."""
        self.evaluate("0")
        return [
            event["params"]["request"]["url"]
            for event in self._own()
            if event["method"] == "Network.requestWillBeSent"
        ]

    def problems(self, url: str) -> list[str]:
        """Return what went wrong so far: exceptions, errors in the console, violations of the Content-Security-Policy,
        and requests to other servers than that of `url`."""
        found = []
        for event in self._own():
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"])[:500])
            elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in (
                "error",
                "warning",
                "assert",
            ):
                found.append(json.dumps(params["args"])[:500])
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        own = urlsplit(url).netloc
        for requested in self.requests():
            parts = urlsplit(requested)
            if parts.scheme not in ("data", "blob", "about") and parts.netloc != own:
                found.append(f"request to {requested}")
        return found

    def close(self) -> None:
        """Close the tab."""
        self._pipes.call("Target.closeTarget", targetId=self._target)

    def _own(self) -> list[dict[str, Any]]:
        return [event for event in self._pipes.events if event.get("sessionId") == self._session]


@contextmanager
def browser(folder: Path) -> Iterator[Pipes]:
    """Run Chromium until the block ends.

    Args:
        folder: folder for its profile.
    """
    assert CHROMIUM is not None
    (to_read, from_us), (from_it, to_write) = os.pipe(), os.pipe()
    flags = [*FLAGS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    # The browser reads from its descriptor 3 and writes to 4. A shell puts the pipes there.
    start = f'exec "$@" 3<&{to_read} 4>&{to_write}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", start, "bash", CHROMIUM, *flags],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(to_write)
    pipes = Pipes(from_it, from_us)
    try:
        yield pipes
    finally:
        os.close(from_us)  # it ends when the pipe does
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_it)
