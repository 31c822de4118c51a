"""`baton top` beside a real deployment: one frame, a terminal, and a gateway that comes back."""

import asyncio
import fcntl
import os
import pty
import re
import socket
import struct
import sys
import termios
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
import pytest

from baton.config import load_config
from baton.runtime.deployment import deploy
from baton.runtime.front import open_front

START_S = 120.0
ROWS, COLUMNS = 40, 80
_BATON = (sys.executable, "-c", "from baton.cli import main; main()")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")
DOWN, ENTER, ESCAPE = b"\x1b[B", b"\r", b"\x1b"


async def run(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *_BATON, "top", *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


class Terminal:
    """A terminal of 80 columns with `baton top` in it; `text` is what came since the last clear."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master = master
        self.process = process
        self.text = ""

    def read(self) -> None:
        with suppress(OSError):  # it has ended
            self.text += _ESCAPES.sub("", os.read(self._master, 65536).decode("utf-8", "replace"))

    async def press(self, keys: bytes) -> None:
        self.text = ""
        os.write(self._master, keys)

    async def until(self, seen: Callable[[str], bool], timeout_s: float = 20.0) -> str:
        async with asyncio.timeout(timeout_s):
            while not seen(self.text):
                await asyncio.sleep(0.05)
        return self.text


@asynccontextmanager
async def terminal(url: str) -> AsyncIterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color"}
    environment.pop("COLUMNS", None)
    environment.pop("LINES", None)
    process = await asyncio.create_subprocess_exec(
        *_BATON, "top", url, "--interval", "0.2",
        stdin=slave, stdout=slave, stderr=slave, env=environment,
    )  # fmt: skip
    os.close(slave)
    os.set_blocking(master, False)
    shown = Terminal(master, process)
    loop = asyncio.get_running_loop()
    loop.add_reader(master, shown.read)
    try:
        yield shown
    finally:
        loop.remove_reader(master)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def ask(url: str, num: int) -> list[str]:
    ids = []
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        for number in range(num):
            body = {"prompt": [5 + number] * 40, "max_tokens": 6, "ignore_eos": True}
            answer = await client.post("/v1/completions", json=body)
            assert answer.status_code == 200, answer.text
            ids.append(answer.json()["id"].removeprefix("cmpl-"))
        async with asyncio.timeout(20):
            while len((await client.get("/dashboard/feed")).json()["requests"]) < num:
                await asyncio.sleep(0.1)
    return ids


@pytest.mark.slow
async def test_top_of_a_real_deployment():
    port = free_port()
    config = load_config(
        None, ["model.name=tiny", f"gateway.port={port}", "router.ttft_slo_ms=60000"]
    )
    url = f"http://127.0.0.1:{port}"
    async with deploy(config, lambda *_: None) as deployment:
        async with open_front(config, deployment):
            await deployment.wait_ready(START_S)
            first, second, third = await ask(url, 3)
            code, out, err = await run(url, "--once")
            assert code == 0 and not err
            assert "\x1b" not in out, "a pipe gets plain text"
            for text in ("prefill-0", "decode-1", "prefill-0 → decode-1", "100.0% of 3"):
                assert text in out, out
            assert all(one[:8] in out for one in (first, second, third))
            assert out.count("first token after") == 3
            code, _, err = await run(url)
            assert code == 2 and "--once" in err, "without a terminal it says what to do"
            async with terminal(url) as shown:
                await shown.until(lambda text: third[:8] in text and "decode-1" in text)
                await shown.press(DOWN + DOWN)
                await shown.until(lambda text: f"▶ {second[:8]}" in text)
                await shown.press(ENTER)
                text = await shown.until(lambda text: f"request {second}" in text)
                assert "prefill-0 → decode-1 (disaggregated)" in text and "total" in text
                await shown.press(ESCAPE)
                await shown.until(lambda text: f"▶ {second[:8]}" in text)
                await shown.press(b"q")
                assert await asyncio.wait_for(shown.process.wait(), 10) == 0
        async with terminal(url) as shown:
            await shown.until(lambda text: "does not answer" in text)
            assert await asyncio.wait_for(shown.process.wait(), 10) == 2
        async with AsyncExitStack() as front:
            await front.enter_async_context(open_front(config, deployment))
            async with terminal(url) as shown:
                await shown.until(lambda text: "decode-1" in text)
                await front.aclose()
                await shown.until(lambda text: "not answering for" in text)
                await shown.press(DOWN)
                await shown.until(lambda text: "▶" in text and "decode-1" in text)
                async with open_front(config, deployment):
                    await ask(url, 1)
                    await shown.press(DOWN)
                    await shown.until(lambda text: _last_frame(text).count("not answering") == 0)
                    assert "decode-1" in _last_frame(shown.text)
                await shown.press(b"q")
                assert await asyncio.wait_for(shown.process.wait(), 10) == 0


def _last_frame(text: str) -> str:
    """The newest whole frame; before there is one, nothing that could be taken for it."""
    frames = text.split("baton top  ")[1:-1]
    return frames[-1] if frames else "not answering"


async def test_what_is_no_gateway_is_named(tmp_path):
    """A web server that is none of ours, and an address that is none at all."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1",
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
        port = re.search(r"port (\d+)", said).group(1)
        code, out, err = await run(f"http://127.0.0.1:{port}", "--once")
        assert code == 2 and not out and "Traceback" not in err
        assert f"URL http://127.0.0.1:{port} is not a Baton server" in err
    finally:
        process.kill()
        await process.wait()
    code, _, err = await run("localhost:8000", "--once")
    assert code == 2 and "URL 'localhost:8000' has no scheme" in err
