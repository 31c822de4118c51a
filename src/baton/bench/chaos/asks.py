"""The requests of a chaos run: texts of many lengths that share beginnings, greedy and sampled."""

import random
from typing import Any

import msgspec

_TEXT = (
    "a baton passes from hand to hand while the clock of the stadium counts every step and the "
    "runner who waits has already begun to move so that nothing is lost between the two"
)
_WORDS = _TEXT.split()
_NUM_SHARED = 3


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request body without what may vary between calls (streaming, tenant)."""

    name: str
    path: str
    body: dict[str, Any]

    @property
    def is_chat(self) -> bool:
        """Whether it is a chat."""
        return "messages" in self.body


def make_asks(seed: int) -> tuple[Ask, ...]:
    """The prompt set of a seed."""
    chance = random.Random(f"asks {seed}")
    shared = [_text(chance, 60 * (number + 1)) for number in range(_NUM_SHARED)]
    asks = [_ask(chance, number, shared) for number in range(24)]
    return (*asks, _long_ask(chance))


def probe_ask(number: int) -> Ask:
    """A short request that no cache knows."""
    body = {"prompt": f"probe {number}: who holds the baton?", "max_tokens": 4}
    return Ask(name=f"probe-{number}", path="/v1/completions", body={**body, **_greedy()})


def _ask(chance: random.Random, number: int, shared: list[str]) -> Ask:
    words = chance.choice([1, 2, 8, 20, 60, 120])
    text = _text(chance, words)
    if chance.random() < 0.5:
        text = f"{chance.choice(shared)} {text}"
    body: dict[str, Any] = {
        "max_tokens": chance.choice([1, 2, 8, 24, 48, 96]),
        **(_greedy() if number % 2 else _sampled(chance)),
    }
    if number % 8 == 6:
        body["n"] = 2
    if number % 3 == 0:
        body["messages"] = [{"role": "user", "content": text}]
        return Ask(name=f"chat-{number}", path="/v1/chat/completions", body=body)
    body["prompt"] = text
    return Ask(name=f"completion-{number}", path="/v1/completions", body=body)


def _long_ask(chance: random.Random) -> Ask:
    body = {"prompt": _text(chance, 240), "max_tokens": 160, **_greedy()}
    return Ask(name="long", path="/v1/completions", body=body)


def _greedy() -> dict[str, Any]:
    return {"temperature": 0.0, "ignore_eos": True}


def _sampled(chance: random.Random) -> dict[str, Any]:
    return {"temperature": 0.9, "top_p": 0.95, "seed": chance.randrange(1 << 30)}


def _text(chance: random.Random, num_words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(num_words))
