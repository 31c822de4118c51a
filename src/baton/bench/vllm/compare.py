"""`baton compare --engine vllm`: plain vLLM and the pair are asked the same, and must agree.

One side runs after the other, so that a small machine holds both. Attached servers stay up: the
plain side is then a mixed server where one is named, else the decode server, asked directly.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from baton import __version__
from baton.bench.vllm.cases import WORDS, Shape, VllmCase, unasked, vllm_cases
from baton.bench.vllm.judge import VllmVerdict, judge
from baton.bench.vllm.leaks import find_leaks
from baton.bench.vllm.side import Answers, ask_side
from baton.config import BatonConfig
from baton.core.ids import Role
from baton.errors import BatonError, ConfigError
from baton.runtime.vllm.serve import VllmFront, open_vllm_front, wait_complete

_STEP_TOKENS = 640
_SPARE_BLOCKS = 8
"""Beyond the longest sequence: eight answers of the case that is to outgrow the pool do not fit."""


class VllmOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result, as written by --json."""

    version: str
    model: str
    connector: str
    direction: str
    servers: str
    """How many of each role."""
    config_digest: str
    verdicts: tuple[VllmVerdict, ...]
    unasked: dict[str, str] = {}
    """Cases of `baton compare` that were not asked, and why."""
    leaks: tuple[str, ...] = ()
    """What the pair still holds after the last answer."""
    duration_s: float = 0.0

    @property
    def same(self) -> bool:
        """There was something to compare, all of it agrees, and nothing is left behind."""
        return bool(self.verdicts) and all(one.same for one in self.verdicts) and not self.leaks


async def run_compare(config: BatonConfig, names: Sequence[str], console: Console) -> VllmOutcome:
    """Ask both sides. Raises BatonError when one cannot run."""
    started_s = time.monotonic()
    salt = uuid.uuid4().hex
    config, shape = _shaped(config)
    not_asked = {} if names else unasked(shape)
    if config.vllm.is_attached:
        async with ready_front(config) as front:
            servers = front.backend.servers
            plain = (servers.up(Role.MIXED) or servers.up(Role.DECODE))[0]
            cases = _chosen(vllm_cases(shape, await vocabulary_of(plain.url)), names)
            here = [case for case in cases if not case.restarts]
            why = "these servers are not ours to kill"
            not_asked |= {case.name: why for case in cases if case.restarts}
            alone = await ask_side(plain.url, None, here, salt + "alone", console)
            pair = await ask_side(front.url, front, here, salt + "pair", console)
            leaks = await find_leaks(front.backend)
    else:
        cluster = msgspec.structs.replace(config.cluster, prefill=0, decode=0, mixed=1)
        one = msgspec.structs.replace(config, cluster=cluster)
        async with ready_front(one) as front:
            (plain,) = front.backend.servers.up(Role.MIXED)
            here = _chosen(vllm_cases(shape, await vocabulary_of(plain.url)), names)
            alone = await ask_side(plain.url, None, here, salt + "alone", console)
        async with ready_front(config) as front:
            pair = await ask_side(front.url, front, here, salt + "pair", console)
            leaks = await find_leaks(front.backend)
    num_prefill, num_decode = _counts(config)
    return VllmOutcome(
        version=__version__,
        model=config.model.name,
        connector=config.vllm.connector,
        direction=str(config.vllm.direction),
        servers=f"{num_prefill} prefill, {num_decode} decode",
        config_digest=config.digest,
        verdicts=tuple(_verdicts(here, alone, pair, num_prefill == 1)),
        unasked=not_asked,
        leaks=tuple(leaks),
        duration_s=time.monotonic() - started_s,
    )


def _counts(config: BatonConfig) -> tuple[int, int]:
    """Prefill and decode servers of the pair."""
    if config.vllm.is_attached:
        return len(config.vllm.prefill_urls), len(config.vllm.decode_urls)
    return config.cluster.prefill, config.cluster.decode


def _shaped(config: BatonConfig) -> tuple[BatonConfig, Shape]:
    """Servers that start here get steps and a pool that the cases can outgrow."""
    block = max(32, config.worker.block_size)
    if config.vllm.is_attached:
        return config, Shape(block=block, step=config.worker.max_batch_tokens)
    arguments = ["--max-num-batched-tokens", str(_STEP_TOKENS)]
    longest = config.model.max_model_len
    if longest:
        num_blocks = -(-longest // block) + _SPARE_BLOCKS
        arguments += ["--num-gpu-blocks-override", str(num_blocks)]
    settings = msgspec.structs.replace(config.vllm, arguments=(*arguments, *config.vllm.arguments))
    config = msgspec.structs.replace(config, vllm=settings)
    return config, Shape(block=block, step=_STEP_TOKENS, is_tight=bool(longest))


@asynccontextmanager
async def ready_front(config: BatonConfig) -> AsyncIterator[VllmFront]:
    """A front on a free port whose servers all answer."""
    gateway = msgspec.structs.replace(config.gateway, host="127.0.0.1", port=0)
    config = msgspec.structs.replace(config, gateway=gateway)
    async with open_vllm_front(config) as front:
        await wait_complete(front, config.cluster.start_timeout_s)
        yield front


async def vocabulary_of(url: str) -> list[int]:
    """Token ids of ordinary words at that server. Raises BatonError where it names none."""
    async with aiohttp.ClientSession() as session:
        body = {"prompt": " " + " ".join(WORDS)}
        async with session.post(f"{url}/tokenize", json=body) as response:
            if response.status != 200:
                raise BatonError(f"{url}/tokenize answers {response.status}")
            tokens = msgspec.json.decode(await response.read())["tokens"]
    return sorted(set(tokens))


def _chosen(cases: Sequence[VllmCase], names: Sequence[str]) -> list[VllmCase]:
    known = {case.name for case in cases}
    if unknown := sorted(set(names) - known):
        raise ConfigError(
            f"--case {unknown[0]}: there is no such case; use one of {', '.join(sorted(known))}"
        )
    return [case for case in cases if not names or case.name in names]


def _verdicts(
    cases: Sequence[VllmCase], alone: Answers, pair: Answers, has_one_source: bool
) -> list[VllmVerdict]:
    """Where several servers prefill, only the most that one may have had is known."""
    verdicts = []
    for case in cases:
        for number, asked in enumerate(case.rounds):
            for index, one in enumerate(asked.asks):
                label, reused = f"{number}.{index}", one.reused
                if reused is not None and not has_one_source:
                    reused = (0, reused[1])
                verdicts.append(
                    judge(
                        case.name,
                        label,
                        alone[case.name, label],
                        pair[case.name, label],
                        mode="disaggregated" if case.is_split else "colocated",
                        reused=reused,
                    )
                )
    return verdicts


def print_outcome(outcome: VllmOutcome, console: Console) -> None:
    """A row per case, every difference, and one line at the end."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("case", no_wrap=True)
    for name in ("n", "equal", "tokens", "mode", "cached", "logprob gap"):
        table.add_column(name, justify="right", no_wrap=True)
    cases: dict[str, list[VllmVerdict]] = {}
    for verdict in outcome.verdicts:
        cases.setdefault(verdict.case, []).append(verdict)
    for case, verdicts in cases.items():
        equal = sum(verdict.same for verdict in verdicts)
        mark = "[green]=[/green]" if equal == len(verdicts) else "[red]≠[/red]"
        gap = max(verdict.logprob_gap for verdict in verdicts)
        table.add_row(
            case,
            str(len(verdicts)),
            mark,
            str(sum(verdict.num_tokens for verdict in verdicts)),
            "/".join(sorted({verdict.mode or "none" for verdict in verdicts})),
            ",".join(str(verdict.cached_tokens) for verdict in verdicts),
            f"{gap:.1e}" if gap else "-",
        )
    console.print(table)
    for verdict in outcome.verdicts:
        for text in verdict.differences:
            line = f"{verdict.case} {verdict.label}: {text}"
            console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    for name, why in outcome.unasked.items():
        console.print(f"not asked: {name}: {why}", highlight=False, soft_wrap=True)
    for text in outcome.leaks:
        console.print(f"left behind: {text}", style="red", markup=False, soft_wrap=True)
    different = sum(not verdict.same for verdict in outcome.verdicts)
    result = "equal" if outcome.same else f"{different} DIFFERENT, {len(outcome.leaks)} LEFT"
    console.print(
        f"{result}: {len(outcome.verdicts)} requests "
        f"in {len(cases)} cases of vLLM by {outcome.connector}, {outcome.direction}, "
        f"{outcome.servers}, against plain vLLM; compared tokens, texts, ends, usage and logprobs; "
        f"{outcome.model}, configuration {outcome.config_digest}, {outcome.duration_s:.0f} s",
        highlight=False,
        soft_wrap=True,
    )


def compare_vllm(
    config: BatonConfig, names: Sequence[str], console: Console, json_out: Path | None
) -> int:
    """Run and print; 0 when all is equal, else 1."""
    outcome = asyncio.run(run_compare(config, names, console))
    if json_out is not None:
        json_out.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=1))
    print_outcome(outcome, console)
    return 0 if outcome.same else 1
