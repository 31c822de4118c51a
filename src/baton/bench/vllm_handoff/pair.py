"""A running pair of vLLM servers with Baton's connector, driven without a gateway."""

import itertools
import json
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from baton.core.ids import Direction, Fence
from baton.errors import BatonError, ConfigError
from baton.integrations.vllm.keys import ISSUER_FILE, MEMBER_FILE, load_issuer, load_member
from baton.integrations.vllm.messages import Status
from baton.integrations.vllm.status import ask_status
from baton.integrations.vllm.ticket import TicketIssuer, decode_params, prefill_params

_DEADLINE_MS = 60_000
_TIMEOUT_S = 300.0
_STATUS_MS = 10_000


def complete(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """POST a completion and return the answer. Raises BatonError with the server's words."""
    request = urllib.request.Request(
        f"{url}/v1/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise BatonError(f"{url}: {error.code} {error.read()[:200].decode()}") from error
    except OSError as error:
        raise BatonError(f"{url}: {error}") from error


class Pair:
    """Both servers by their URLs and control endpoints."""

    def __init__(
        self, keys: Path, prefill_url: str, decode_url: str, controls: tuple[str, str]
    ) -> None:
        self.prefill_url = prefill_url
        self.decode_url = decode_url
        self._controls = controls
        self._member = load_member(keys / MEMBER_FILE)
        self._issuer = TicketIssuer(load_issuer(keys / ISSUER_FILE).signer())
        self._requests = itertools.count(time.time_ns() // 1_000_000)

    def statuses(self) -> tuple[Status, Status]:
        """Of source and destination. Raises ConfigError when one does not answer."""
        found = []
        for endpoint in self._controls:
            status = ask_status(endpoint, self._member, _STATUS_MS)
            if status is None:
                raise ConfigError(f"no connector answers at {endpoint}; start the server first")
            found.append(status)
        return found[0], found[1]

    def ticket(self, direction: Direction) -> str:
        """For one handoff between the lives that are there now."""
        source, destination = (status.info for status in self.statuses())
        fence = Fence(
            tenant_id="bench",
            request_id=f"bench-{next(self._requests)}",
            generation=1,
            attempt=1,
            source_id=source.member.worker_id,
            source_epoch=source.member.epoch,
            destination_id=destination.member.worker_id,
            destination_epoch=destination.member.epoch,
        )
        return self._issuer.mint(
            fence,
            source,
            destination,
            direction=direction,
            route_epoch=1,
            now_us=time.time_ns() // 1000,
            deadline_ms=_DEADLINE_MS,
        )

    def hand_over(self, body: dict[str, Any], direction: Direction) -> tuple[dict[str, Any], float]:
        """Both legs; returns the decode leg's answer and how long that leg took, in seconds."""
        ticket = self.ticket(direction)
        leg = {**body, "max_tokens": 1, "kv_transfer_params": prefill_params(ticket)}
        if direction is Direction.PULL:
            answer = complete(self.prefill_url, leg).get("kv_transfer_params")
            return self._decode(body, decode_params(ticket, answer))
        prefill = threading.Thread(target=complete, args=(self.prefill_url, leg))
        prefill.start()
        try:
            return self._decode(body, decode_params(ticket))
        finally:
            prefill.join()

    def _decode(self, body: dict[str, Any], params: dict[str, Any]) -> tuple[dict[str, Any], float]:
        began_s = time.perf_counter()
        answer = complete(self.decode_url, {**body, "kv_transfer_params": params})
        return answer, time.perf_counter() - began_s
