"""A headless Chromium that tests drive by the DevTools protocol, through two pipes: no port, no network, no library."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
_KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9), "Space": (" ", 32)}
_KEYS |= {f"Arrow{name}": ("", code) for name, code in (("Left", 37), ("Up", 38), ("Right", 39), ("Down", 40))}


def find_chromium() -> str | None:
    """The browser's path, if there is one."""
    return next((found for found in map(shutil.which, _NAMES) if found), None)


class Chromium:
    """One browser with one page.

    Args:
        executable: path of the browser.
        profile: an empty directory of its own.
        time_limit: seconds that any answer may take.
    """

    def __init__(self, executable: str, profile: Path, time_limit: float = 30) -> None:
        self.time_limit = time_limit
        self.events: list[dict[str, Any]] = []
        self._last_id, self._num_opened, self._session, self._buffer = 0, 0, "", b""
        # The browser reads commands from its file 3 and answers on its file 4; above 10, neither is in the way.
        (far_in, near_out), (near_in, far_out) = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (far_in, far_out)]
        script = f'exec "$0" "$@" 3<&{ends[0]} 4>&{ends[1]}'
        command = ["bash", "-c", script, executable, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._log = open(profile / "browser.log", "wb")  # noqa: SIM115 - closed with the browser
        self._process = subprocess.Popen(
            command, pass_fds=ends, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        for end in (far_in, far_out, *ends):
            os.close(end)
        self._out, self._in = near_out, near_in
        pages = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """Ends the browser."""
        self._process.terminate()
        try:
            self._process.wait(self.time_limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._log.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; events that come before its answer are kept in `events`."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.time_limit
        while True:
            answer = self._read(deadline, method)
            if answer.get("id") == self._last_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, path: Path, address: str = "", *, width: int = 1280, height: int = 900) -> None:
        """Loads a file anew in a window of this size, with what comes after # in its address."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        # Another query each time makes it another page; where only what comes after # differs, the old one would stay.
        self._num_opened += 1
        url = f"{path.as_uri()}?{self._num_opened}"
        self.call("Page.navigate", url=url + (f"#{address}" if address else ""))
        self.wait(f"(location.href + '#').startsWith({json.dumps(url + '#')}) && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of an expression in the page, promises awaited."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, f"{script}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        deadline = time.monotonic() + self.time_limit
        while not self.run(condition):
            assert time.monotonic() < deadline, f"not within {self.time_limit} s: {condition}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Presses keys one after the other: `Tab`, `ArrowLeft`, `Shift+Tab`, ..."""
        for key in keys:
            modifiers, name = (8, key.removeprefix("Shift+")) if key.startswith("Shift+") else (0, key)
            text, code = _KEYS[name]
            about: dict[str, Any] = {"key": text if name == "Space" else name, "code": name, "modifiers": modifiers}
            about["windowsVirtualKeyCode"] = code
            self.call("Input.dispatchKeyEvent", type="keyDown", **about, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def point(self, selector: str, *, click: bool = False) -> None:
        """Moves the mouse to the middle of an element, and clicks there if asked to."""
        box = "(({left, top, width, height}) => [left + width / 2, top + height / 2])"
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.scrollIntoView({{block: 'center'}})")
        x, y = self.run(f"{box}({element}.getBoundingClientRect())")
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            pressed = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def screenshot(self, path: Path, *, whole: bool = False) -> Path:
        """The window, or the whole page, as PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
        return path

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and requests for anything but files since the last `open`."""
        self.run("1")
        found = []
        for event in self.events:
            about, name = event.get("params", {}), event.get("method")
            if name == "Runtime.exceptionThrown":
                found.append(str(about["exceptionDetails"]))
            elif name == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
                found.append(str(about["args"]))
            elif name == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                found.append(about["entry"]["text"])
            elif name == "Network.requestWillBeSent" and not _is_local(about["request"]["url"]):
                found.append(f"asks for {about['request']['url']}")
        return found

    def _read(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready: Sequence[int] = select.select([self._in], [], [], max(0, deadline - time.monotonic()))[0]
            assert ready, f"{method}: no answer within {self.time_limit} s; see {self._log.name}"
            piece = os.read(self._in, 1 << 16)
            assert piece, f"{method}: the browser ended; see {self._log.name}"
            self._buffer += piece
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))


def _is_local(url: str) -> bool:
    return url.startswith(("file:", "data:", "about:", "blob:"))
