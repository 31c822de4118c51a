"""How many machines of which kind do what: the coordinates of a provisioning search (0x08K)."""

import re

import msgspec

from baton.errors import ConfigError

_POOL = re.compile(r"(\d+)x([A-Za-z0-9_.-]+)")


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt and token machines, or machines that run both phases; never all three at once."""

    prompt: str = ""
    num_prompt: int = 0
    token: str = ""
    num_token: int = 0
    mixed: str = ""
    num_mixed: int = 0

    def __post_init__(self) -> None:
        counts = {"prompt": self.num_prompt, "token": self.num_token, "mixed": self.num_mixed}
        for pool, num in counts.items():
            if num < 0 or (num > 0) != bool(getattr(self, pool)):
                raise ConfigError(
                    f"fleet: {num} {pool} machines of type {getattr(self, pool)!r}; give a type "
                    "and at least 1, or neither"
                )
        if (self.num_prompt > 0) != (self.num_token > 0):
            raise ConfigError("fleet: prompt and token machines need each other")
        if (self.num_prompt > 0) == (self.num_mixed > 0):
            raise ConfigError("fleet: give prompt and token machines, or mixed ones")

    @property
    def num_machines(self) -> int:
        """Of all pools."""
        return self.num_prompt + self.num_token + self.num_mixed

    @property
    def machines(self) -> dict[str, int]:
        """How many of each type."""
        found: dict[str, int] = {}
        for name, num in (
            (self.prompt, self.num_prompt),
            (self.token, self.num_token),
            (self.mixed, self.num_mixed),
        ):
            if num:
                found[name] = found.get(name, 0) + num
        return found

    @property
    def is_split(self) -> bool:
        """Whether prompts and tokens run on different machines."""
        return self.num_prompt > 0

    def __str__(self) -> str:
        if self.is_split:
            return f"{self.num_prompt}x{self.prompt}:{self.num_token}x{self.token}"
        return f"{self.num_mixed}x{self.mixed}"


def split_fleet(prompt: str, num_prompt: int, token: str, num_token: int) -> Fleet:
    """So many machines for prompts, so many for tokens."""
    return Fleet(prompt=prompt, num_prompt=num_prompt, token=token, num_token=num_token)


def mixed_fleet(machine: str, num: int) -> Fleet:
    """Every machine runs both phases: the baseline."""
    return Fleet(mixed=machine, num_mixed=num)


def parse_fleet(text: str) -> Fleet:
    """From `25xh100:26xa100` (prompt, token machines) or `70xa100` (both phases on each)."""
    pools = [_POOL.fullmatch(one.strip()) for one in text.split(":")]
    if len(pools) > 2 or not all(pools):
        raise ConfigError(
            f"fleet {text!r}: write COUNTxTYPE, or COUNTxTYPE:COUNTxTYPE for prompt and token "
            "machines, such as 25xh100:26xa100"
        )
    found = [(int(one[1]), one[2]) for one in pools if one]
    if len(found) == 1:
        return mixed_fleet(found[0][1], found[0][0])
    (num_prompt, prompt), (num_token, token) = found
    return split_fleet(prompt, num_prompt, token, num_token)
