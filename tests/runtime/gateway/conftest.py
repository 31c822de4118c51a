"""One server for all tests of the gateway; each test starts with a fresh script."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from gateway_fakes import ScriptedBackend, Served, running_server, tiny_tokenizer, wait_until

from baton.runtime.gateway import Tokenizer, exchange


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Served]:
    with running_server() as served:
        yield served


@pytest.fixture
def served(shared_server: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(exchange, "LINGER_S", 0.2)
    shared_server.backend.reset()
    yield shared_server
    # Nothing may be left un-ended in the backend; a test may leave while its stream is closing.
    wait_until(lambda: not shared_server.backend.held)


@pytest.fixture
def backend(served: Served) -> ScriptedBackend:
    return served.backend


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture
def client(served: Served, http: httpx.Client) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=served.url + "/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx.Client(trust_env=False, timeout=10),
    )


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return tiny_tokenizer()
