"""A headless Chromium over its DevTools protocol: pages are opened, pressed, measured and shot."""

import asyncio
import base64
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from baton.errors import BatonError

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_START_S = 60.0
_ANSWER_S = 30.0
_POLL_S = 0.05
_MAX_MESSAGE_NBYTES = 64 << 20
_NAMED_KEYS = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9}


def find_browser() -> str | None:
    """The path of an installed Chromium, or None."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


class Page:
    """One tab. Every call has a deadline and raises BatonError or TimeoutError when it fails."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        """Errors and warnings of the console, uncaught exceptions, requests that failed."""

    async def listen(self) -> None:
        """Take what the browser says until the tab is closed."""
        async for message in self._socket:
            said = message.json()
            waiting = self._answers.pop(said.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(said)
            self._note(said.get("method", ""), said.get("params", {}))

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"].get("exception", params)))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(params["entry"]))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser one thing."""
        number = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(answer, _ANSWER_S)
        if "error" in said:
            raise BatonError(f"the browser refuses {method}: {said['error']}")
        return dict(said.get("result", {}))

    async def open(self, url: str, *, width: int = 1280, height: int = 900) -> None:
        """Go to an address in a window of this size."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.resize(width, height)
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete'")

    async def resize(self, width: int, height: int) -> None:
        """Make the window as large."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def prefer(self, scheme: str) -> None:
        """Be somebody who prefers `light` or `dark` pages."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page. Raises BatonError where it throws."""
        said = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in said:
            raise BatonError(f"{script} throws {said['exceptionDetails']}")
        return said["result"].get("value")

    async def until(
        self,
        script: str,
        seen: Callable[[Any], bool] = bool,
        timeout_s: float = _ANSWER_S,
    ) -> Any:
        """Wait until an expression has such a value; returns it. Raises TimeoutError."""
        value = None
        try:
            async with asyncio.timeout(timeout_s):
                while not seen(value := await self.evaluate(script)):
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise TimeoutError(f"{script} stayed {value!r} for {timeout_s:g} s") from error
        return value

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other: a character, or a name such as Enter."""
        for key in keys:
            code = _NAMED_KEYS.get(key, 0)
            event: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code or ord(key.upper())}
            text = "\r" if key == "Enter" else "" if code else key
            typed = {"text": text} if text else {}
            await self.call("Input.dispatchKeyEvent", type="keyDown", **event, **typed)
            await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def shoot(self, path: Path) -> None:
        """Write what the window shows as a PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


@asynccontextmanager
async def browsing(browser: str) -> AsyncIterator[Page]:
    """Start a browser with one tab; it ends, with its folder, when the block is left."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            address = await _tab(process, Path(folder) / "DevToolsActivePort")
            async with (
                aiohttp.ClientSession() as session,
                session.ws_connect(address, max_msg_size=_MAX_MESSAGE_NBYTES) as socket,
            ):
                page = Page(socket)
                listening = asyncio.create_task(page.listen())
                try:
                    yield page
                finally:
                    listening.cancel()
                    await asyncio.gather(listening, return_exceptions=True)
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _ANSWER_S)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _tab(process: asyncio.subprocess.Process, announced: Path) -> str:
    """The WebSocket address of the browser's tab. Raises BatonError where it does not start."""
    async with asyncio.timeout(_START_S):
        while not (announced.exists() and announced.read_text().strip()):
            if process.returncode is not None:
                raise BatonError(f"the browser ended with {process.returncode} before it listened")
            await asyncio.sleep(_POLL_S)
        url = f"http://127.0.0.1:{announced.read_text().split()[0]}/json/list"
        async with aiohttp.ClientSession() as session:
            while True:
                async with session.get(url) as answer:
                    tabs = [one for one in await answer.json() if one["type"] == "page"]
                if tabs:
                    return str(tabs[0]["webSocketDebuggerUrl"])
                await asyncio.sleep(_POLL_S)
