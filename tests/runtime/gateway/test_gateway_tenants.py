"""Who a request belongs to: by key or by a trusted header, never by what else a client sends."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from gateway_fakes import CONFIG, ScriptedBackend, running_server

from baton.config import load_config
from baton.errors import ConfigError
from baton.runtime.gateway.tenants import Tenants

HELLO = [{"role": "user", "content": "hi"}]
ENDPOINTS = {"/v1/chat/completions": {"messages": HELLO}, "/v1/completions": {"prompt": "hi"}}
SECRET = "sk-very-secret-0123456789"

Headers = list[tuple[str, str]]


class Edge:
    """A server with one way to tell tenants apart."""

    def __init__(self, backend: ScriptedBackend, http: httpx.Client) -> None:
        self.backend = backend
        self.http = http

    def post(
        self, headers: Headers, path: str = "/v1/completions", query: str = "", **fields: Any
    ) -> httpx.Response:
        body = {**ENDPOINTS[path], **fields}
        return self.http.post(path + query, json=body, headers=headers)

    def tenant(self, headers: Headers, path: str = "/v1/completions", **fields: Any) -> str:
        """The tenant that the backend was told."""
        answer = self.post(headers, path, **fields)
        assert answer.status_code == 200, answer.text
        return self.backend.submitted[-1].tenant_id


@contextmanager
def edge(**knobs: str) -> Iterator[Edge]:
    with (
        running_server(msgspec.structs.replace(CONFIG, **knobs)) as served,
        httpx.Client(base_url=served.url, timeout=10, trust_env=False) as http,
    ):
        yield Edge(served.backend, http)


def key(token: str) -> Headers:
    return [("authorization", f"Bearer {token}")]


@pytest.mark.parametrize("path", ENDPOINTS)
def test_without_tenants_everybody_is_the_same(path):
    with edge() as server:
        for headers in ([], key("a"), [("x-baton-tenant", "a")]):
            assert server.tenant(headers, path) == ""
        assert 'dropped_total{field="x-baton-tenant"' in server.http.get("/metrics").text


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_key_is_a_tenant(path):
    with edge(tenants="api_key") as server:
        first = server.tenant(key(SECRET), path)
        assert len(bytes.fromhex(first)) == 16
        assert server.tenant(key(SECRET), path, stream=True) == first
        assert server.tenant([("Authorization", f"bearer  {SECRET}")], path) == first
        assert server.tenant(key(SECRET + "x"), path) != first
        for nobody in ([], [("authorization", "Bearer")], [("authorization", "Basic YTpi")]):
            assert server.tenant(nobody, path) == ""


def test_nothing_else_that_a_client_sends_makes_it_another_tenant():
    with edge(tenants="api_key") as server:
        victim = server.tenant(key(SECRET))
        for headers in (
            [("x-baton-tenant", SECRET)],
            [("x-baton-tenant", victim)],
            [("x-tenant-id", SECRET)],
            [("proxy-authorization", f"Bearer {SECRET}")],
            [("x-api-key", SECRET)],
            [("cookie", f"authorization=Bearer {SECRET}")],
        ):
            assert server.tenant(headers) == ""
        # Whoever has read an id, as in a trace, is not that tenant.
        assert server.tenant(key(victim)) not in ("", victim)
        for fields in ({"tenant_id": victim}, {"tenant": victim}, {"user": SECRET}):
            assert server.tenant([], **fields) == ""
        assert server.tenant([], query=f"?tenant_id={victim}") == ""
        # A salt is of its tenant: as a salt, an id opens nothing.
        assert server.tenant([], cache_salt=victim) == ""
        assert server.backend.submitted[-1].cache_salt == victim


@pytest.mark.parametrize(
    ("mode", "name"), [("api_key", "authorization"), ("header", "x-baton-tenant")]
)
def test_two_tenants_in_one_request_are_refused(mode, name):
    with edge(tenants=mode) as server:
        answer = server.post([(name, "Bearer a"), (name, "Bearer b")])
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == name
        assert answer.json()["error"]["code"] == "ambiguous_tenant"
        assert not server.backend.submitted
        long = server.post([(name, "Bearer " + "a" * 9000)])
        assert (long.status_code, long.json()["error"]["code"]) == (400, "invalid_tenant")


def test_a_trusted_header_is_believed_and_a_key_is_not():
    with edge(tenants="header", tenant_header="x-proxy-user") as server:
        alice = server.tenant([("x-proxy-user", "alice")])
        assert alice not in ("", "alice")
        assert server.tenant([("x-proxy-user", "alice"), *key("anything")]) == alice
        assert server.tenant([("x-proxy-user", "bob")]) not in ("", alice)
        assert server.tenant([("x-baton-tenant", "alice")]) == ""
        assert server.tenant(key("alice")) == ""


def test_what_the_client_sent_is_in_no_log_and_no_metric(caplog):
    caplog.set_level(logging.DEBUG)
    with edge(tenants="api_key") as server:
        server.tenant(key(SECRET))
        assert server.post(key(SECRET), temperature=9).status_code == 400
        shown = caplog.text + server.http.get("/metrics").text + server.http.get("/version").text
        assert "temperature" in server.post(key(SECRET), temperature=9).text
    assert SECRET not in shown
    assert SECRET not in repr(server.backend.submitted)


def test_the_digest_is_of_this_gateway_unless_a_key_file_says_otherwise(tmp_path: Path):
    headers = [(b"authorization", b"Bearer a")]
    drawn = [Tenants(msgspec.structs.replace(CONFIG, tenants="api_key")) for _ in range(2)]
    assert drawn[0].of(headers) != drawn[1].of(headers)
    secret = tmp_path / "key"
    secret.write_bytes(bytes(range(16)))
    kept = [
        Tenants(msgspec.structs.replace(CONFIG, tenants=mode, tenant_key_file=str(secret))).of(
            [*headers, (b"x-baton-tenant", b"a")]
        )
        for mode in ("api_key", "api_key", "header")
    ]
    assert kept[0] == kept[1] != kept[2]


def test_a_key_file_that_cannot_serve_is_refused(tmp_path: Path):
    short = tmp_path / "short"
    short.write_bytes(b"123")
    for path, text in ((short, "has 3 bytes"), (tmp_path / "absent", "cannot be read")):
        config = msgspec.structs.replace(CONFIG, tenants="api_key", tenant_key_file=str(path))
        with pytest.raises(ConfigError, match=f"gateway.tenant_key_file.*{text}"):
            Tenants(config)


@pytest.mark.parametrize("name", ["", "X-Upper", "with space", "authorization", "x:y"])
def test_a_header_that_cannot_carry_a_tenant_is_refused(name):
    with pytest.raises(ConfigError, match=r"gateway\.tenant_header"):
        load_config(None, [f'gateway.tenant_header="{name}"'])
