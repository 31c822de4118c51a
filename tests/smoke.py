"""`make serve` as a newcomer runs it: start, one streamed chat answer, Ctrl-C, nothing left."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from openai import OpenAI

START_TIMEOUT_S = 600
STOP_TIMEOUT_S = 60


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_ready(base: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"smoke: `make serve` ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"{base}/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit("smoke: not ready in time")


def ask(base: str) -> str:
    client = OpenAI(base_url=f"{base}/v1", api_key="none", timeout=120)
    stream = client.chat.completions.create(
        model=os.environ.get("MODEL", "smollm2"),
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        stream=True,
        temperature=0,
        max_tokens=24,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    for chunk in stream:
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert usage is not None and usage.completion_tokens > 0, usage
    return text


def orphans() -> set[str]:
    """Shared-memory segments whose creator is dead (`baton-<pid>-...`)."""
    names = {path.name for path in Path("/dev/shm").glob("baton-*")}
    return {name for name in names if not Path(f"/proc/{name.split('-')[1]}").exists()}


def main() -> None:
    before, port = orphans(), free_port()
    base = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(["make", "serve", f"ARGS=--port {port}"], start_new_session=True)
    try:
        wait_ready(base, process)
        text = ask(base)
        print(f"smoke: answer: {json.dumps(text)}")
        if os.environ.get("MODEL", "smollm2") == "smollm2":
            assert "Paris" in text, text
        with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        assert (
            'baton_pd_route_total{policy="shortest_queue",topology="host",result="disagg' in metrics
        )
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise SystemExit("smoke: Ctrl-C did not stop the server") from None
    time.sleep(0.5)
    left = subprocess.run(["pgrep", "-g", str(process.pid)], capture_output=True, text=True)
    assert not left.stdout.strip(), f"processes left: {left.stdout}"
    assert orphans() <= before, f"segments left: {orphans() - before}"
    print("smoke: stopped cleanly, nothing left")


if __name__ == "__main__":
    sys.exit(main())
