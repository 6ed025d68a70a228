"""A headless Chromium over its own pipe, without a network: pages are opened from disk and asked what they are.

Nothing but the standard library: the DevTools protocol is JSON with a zero byte behind each message.
"""

import base64
import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--mute-audio",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip


def executable() -> str | None:
    """Where a Chromium is installed; None where none is."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser with one page in it; what the page asks for and what it complains of is kept."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="sweep-browser-", ignore_cleanup_errors=True)
        (read, self._write), (self._read, write) = os.pipe(), os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)]  # out of the way of 3 and 4
        command = [program, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        silent = [(os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)]
        piped = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(ends, (3, 4), strict=True)]
        self._process = os.posix_spawn(program, command, dict(os.environ), file_actions=[*silent, *piped])
        for end in (read, write, *ends):
            os.close(end)
        self._buffer, self._sent, self._session = b"", 0, ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        offline = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        self.ask("Network.emulateNetworkConditions", offline=True, **offline)

    def open(self, path: Path, width: int = 1280, height: int = 800) -> None:
        """Loads a page from disk, with nothing left of the one before."""
        self.requests, self.complaints = [], []
        self.ask("Emulation.setEmulatedMedia", media="", features=[])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Page.navigate", url=path.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def click(self, script: str) -> None:
        """A click of the mouse in the middle of the element that an expression gives."""
        x, y = self.point(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, script: str) -> None:
        """The mouse in the middle of the element that an expression gives."""
        x, y = self.point(script)
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """A key such as "ArrowRight"."""
        codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Enter": 13, "Escape": 27}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def point(self, script: str) -> tuple[float, float]:
        """The middle of an element, scrolled into sight."""
        box = f"(() => {{ const e = {script}; e.scrollIntoView({{block: 'center', inline: 'center'}});"
        x, y = self.run(
            box + " const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2] })()"
        )
        return x, y

    def prefer(self, scheme: str, media: str = "") -> None:
        """The system's colours, "dark" or "light", and the medium."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Writes a PNG of what is seen, or of the whole page."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        """Ends the browser."""
        self._session = ""
        self.ask("Browser.close")
        os.waitpid(self._process, 0)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command; events that come meanwhile are noted."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._sent:
            pass
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser has ended"
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return dict(message)

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"]))
