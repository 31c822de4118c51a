"""A proxy for vLLM servers: prefill first, then decode with the K/V that the first one holds.

Alone in a folder it needs aiohttp only, which comes with vLLM:

    python3 proxy.py --port 8000 --prefill http://HOST:8100 --decode http://HOST:8101

or, for servers that do both, `--mixed URL` for each. Every request goes to the server with the
fewest open ones.
"""

import argparse
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, web

MAX_BODY_NBYTES = 64 << 20
ROUTES = ("/v1/completions", "/v1/chat/completions")
NO_STATE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""Asks a prefill server to keep the K/V for another one, whose address it does not know."""
KEPT_HEADERS = ("Authorization",)


class Servers:
    """Servers of one role, and how many requests each has."""

    def __init__(self, urls: list[str]) -> None:
        self.open = dict.fromkeys((url.rstrip("/") for url in urls), 0)

    @asynccontextmanager
    async def least_loaded(self) -> AsyncIterator[str]:
        """The first of those with the fewest open requests, counted while it is in use."""
        url = min(self.open, key=lambda one: self.open[one])
        self.open[url] += 1
        try:
            yield url
        finally:
            self.open[url] -= 1


class Proxy:
    """The whole state: pools, and one session for all of them."""

    def __init__(self, prefill: list[str], decode: list[str], mixed: list[str]) -> None:
        if bool(prefill) != bool(decode) or bool(prefill) == bool(mixed):
            raise SystemExit("proxy: give --prefill and --decode servers, or --mixed ones alone")
        self.prefill = Servers(prefill) if prefill else None
        self.answering = Servers(decode or mixed)
        self.session: ClientSession | None = None

    def application(self) -> web.Application:
        """Routes, and the session's life."""
        app = web.Application(client_max_size=MAX_BODY_NBYTES)
        for route in ROUTES:
            app.router.add_post(route, self.generate)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        app.cleanup_ctx.append(self._hold_session)
        return app

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """Prefill where there is such a pool, then the answer as its server streams it."""
        try:
            body = json.loads(await request.read())
        except ValueError:
            return _error(400, "the body is not JSON")
        if not isinstance(body, dict):
            return _error(400, "the body is not a JSON object")
        if "kv_transfer_params" in body:
            return _error(400, "kv_transfer_params are not for clients")
        headers = {name: request.headers[name] for name in KEPT_HEADERS if name in request.headers}
        headers["X-Request-Id"] = request.headers.get("X-Request-Id", uuid.uuid4().hex)
        try:
            if self.prefill is not None:
                refused = await self._prefill(request.path, body, headers)
                if refused is not None:
                    return refused
            return await self._answer(request, body, headers)
        except (TimeoutError, ClientError) as error:
            return _error(502, f"a server cannot be reached: {error}")

    async def models(self, request: web.Request) -> web.StreamResponse:
        """As one of the answering servers says."""
        async with (
            self.answering.least_loaded() as url,
            self._session().get(f"{url}{request.path}") as found,
        ):
            return web.Response(status=found.status, body=await found.read(), headers=_kind(found))

    async def health(self, request: web.Request) -> web.Response:
        """The proxy's own."""
        del request
        pools = {"prefill": self.prefill, "answering": self.answering}
        return web.json_response({name: pool.open for name, pool in pools.items() if pool})

    async def _prefill(
        self, path: str, body: dict[str, Any], headers: dict[str, str]
    ) -> web.Response | None:
        """Compute the prompt; its state's address goes into `body`. A refusal is the answer."""
        assert self.prefill is not None
        async with (
            self.prefill.least_loaded() as url,
            self._session().post(f"{url}{path}", json=prompt_body(body), headers=headers) as done,
        ):
            text = await done.read()
            if done.status >= 400:
                return web.Response(status=done.status, body=text, headers=_kind(done))
            state = json.loads(text).get("kv_transfer_params")
            if state:
                body["kv_transfer_params"] = state
            return None

    async def _answer(
        self, request: web.Request, body: dict[str, Any], headers: dict[str, str]
    ) -> web.StreamResponse:
        async with (
            self.answering.least_loaded() as url,
            self._session().post(f"{url}{request.path}", json=body, headers=headers) as answer,
        ):
            response = web.StreamResponse(status=answer.status, headers=_kind(answer))
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response

    async def _hold_session(self, app: web.Application) -> AsyncIterator[None]:
        del app
        self.session = ClientSession(
            connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None, connect=10)
        )
        yield
        await self.session.close()

    def _session(self) -> ClientSession:
        assert self.session is not None
        return self.session


def prompt_body(body: dict[str, Any]) -> dict[str, Any]:
    """What the prefill server is asked: the prompt and one token, not streamed."""
    asked = {**body, "stream": False, "max_tokens": 1, "kv_transfer_params": NO_STATE}
    if "max_completion_tokens" in body:
        asked["max_completion_tokens"] = 1
    for name in ("stream_options", "min_tokens", "n", "best_of"):
        asked.pop(name, None)
    return asked


def _kind(answer: ClientResponse) -> dict[str, str]:
    return {"Content-Type": answer.headers.get("Content-Type", "application/json")}


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": {"message": text, "code": status}}, status=status)


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    for role in ("prefill", "decode", "mixed"):
        parser.add_argument(f"--{role}", action="append", default=[], metavar="URL")
    given = parser.parse_args()
    proxy = Proxy(given.prefill, given.decode, given.mixed)
    web.run_app(proxy.application(), host=given.host, port=given.port)


if __name__ == "__main__":
    main()
