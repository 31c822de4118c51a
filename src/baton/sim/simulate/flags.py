"""What the flags of `baton simulate` may be where the plan does not check them itself.

A refusal names the flag that was typed.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, get_args, get_type_hints

from baton.config import RouterConfig
from baton.core.ids import Role
from baton.errors import ConfigError
from baton.sim.fast.deployment import Failure
from baton.workload.load import AUTO, FORMATS

ROUTES: tuple[str, ...] = get_args(get_type_hints(RouterConfig)["policy"])
"""Policies by name, as the configuration has them."""
_LEAST = {
    "num": (1, "requests of the file, 1 or more; leave it out for all"),
    "max_output": (1, "tokens, 1 or more; leave it out to cut no answer"),
    "prefill": (1, "workers, 1 or more"),
    "decode": (1, "workers, 1 or more"),
    "mixed": (1, "workers, 1 or more"),
    "tp": (1, "GPUs of each stage of a worker, 1 or more"),
    "pp": (1, "pipeline stages of a worker, 1 or more"),
    "decode_tp": (1, "GPUs of each stage of a decode worker, 1 or more"),
    "decode_pp": (1, "pipeline stages of a decode worker, 1 or more"),
    "seed": (0, "a whole number, 0 or more"),
}
_MOST = {
    **dict.fromkeys(("prefill", "decode", "mixed"), 64),
    **dict.fromkeys(("blocks", "cache_tokens", "decode_blocks", "max_output"), 10**12),
    **dict.fromkeys(("max_model_len", "seed", "closed_loop"), 10**12),
    "tick": 10**9,
}
"""Workers as a configuration has them; the others within whole numbers of 64 bits."""
_ROUTE_KEY = "router.policy"
US_PER_S = 1e6


def check_flags(flags: Mapping[str, Any]) -> None:
    """Refuse what no simulation can mean. Raises ConfigError: flag, value, remedy."""
    for name, (least, remedy) in _LEAST.items():
        value = flags[name]
        if value is not None and value < least:
            raise _refused(name, value, remedy)
    for name, most in _MOST.items():
        if flags[name] is not None and flags[name] > most:
            raise _refused(name, flags[name], f"at most {most}")
    _check_sizes(flags)
    _check_choice("format", flags["format"], (AUTO, *FORMATS))
    _check_choice("route", flags["route"], ROUTES)
    _check_route_once(flags["route"], flags["overrides"] or [])
    _check_arrivals(flags)
    _check_attainment(flags["attainment"], flags["goodput"])


def check_decode_cut(flags: Mapping[str, Any], roles: Sequence[Role]) -> None:
    """Refuse a cut of decode workers where there are none."""
    for name in ("decode_tp", "decode_pp"):
        if flags[name] is not None and Role.DECODE not in roles:
            remedy = "there are no decode workers; give --prefill and --decode, or --tp and --pp"
            raise _refused(name, flags[name], remedy)


def _refused(name: str, value: object, remedy: str) -> ConfigError:
    return ConfigError(f"--{name.replace('_', '-')} {value}: {remedy}")


def _check_sizes(flags: Mapping[str, Any]) -> None:
    size = flags["block_size"]
    if size is not None and (size < 1 or size & (size - 1)):
        raise _refused("block_size", size, "tokens of a block, a power of two such as 16 or 512")
    if flags["decode_blocks"] < 0 or flags["decode_blocks"] == 1:
        remedy = "a decode worker needs at least 2; 0 gives it as many as the others"
        raise _refused("decode_blocks", flags["decode_blocks"], remedy)
    if flags["max_model_len"] < 0 or flags["max_model_len"] == 1:
        remedy = "tokens, 2 or more; 0 takes the longest request"
        raise _refused("max_model_len", flags["max_model_len"], remedy)


def _check_choice(name: str, value: str | None, permitted: tuple[str, ...]) -> None:
    if value is not None and value not in permitted:
        raise ConfigError(f"--{name} {value!r}: not known; use one of {', '.join(permitted)}")


def _check_route_once(route: str | None, overrides: list[str]) -> None:
    for override in overrides if route is not None else ():
        key, _, value = override.partition("=")
        if key.strip() == _ROUTE_KEY and value.strip().strip("\"'") != route:
            raise ConfigError(
                f"--route {route} and --set {override} name two policies; give one of them"
            )


def _check_arrivals(flags: Mapping[str, Any]) -> None:
    at_once = flags["closed_loop"]
    for name in ("speed", "tick") if at_once else ():
        if flags[name]:
            raise ConfigError(
                f"--closed-loop {at_once} and --{name} {flags[name]:g} do not go together: "
                "a closed loop ignores arrivals; give one of them"
            )


def _check_attainment(share: float | None, goodput: list[str] | None) -> None:
    if share is None:
        return
    if not 0 < share <= 1:
        raise _refused("attainment", f"{share:g}", "a share above 0 and at most 1, such as 0.9")
    if not goodput:
        raise _refused(
            "attainment", f"{share:g}", "nothing to meet; add --goodput, such as --goodput ttft:200"
        )


def failures_of(texts: Sequence[str]) -> tuple[Failure, ...]:
    """Of `--fail 3:120:30`: worker 3, over all in start order, is gone from 120 s on for 30 s."""
    found = []
    for text in texts:
        pieces = text.split(":")
        try:
            worker, at_s, down_s = int(pieces[0]), float(pieces[1]), float(pieces[2])
        except (IndexError, ValueError):
            worker, at_s, down_s = -1, 0.0, 0.0
        if len(pieces) != 3 or worker < 0 or not (0 <= at_s < inf and 0 < down_s < inf):
            raise ConfigError(f"--fail {text!r}: write WORKER:AT_S:DOWN_S, such as 3:120:30")
        found.append(Failure(worker=worker, at_us=at_s * US_PER_S, down_us=down_s * US_PER_S))
    return tuple(found)
