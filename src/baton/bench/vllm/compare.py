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
from baton.bench.vllm.asking import Answer, ask
from baton.bench.vllm.cases import WORDS, VllmCase, vllm_cases
from baton.bench.vllm.judge import VllmVerdict, judge
from baton.config import BatonConfig
from baton.core.ids import Role
from baton.errors import BatonError, ConfigError
from baton.runtime.vllm.serve import VllmFront, open_vllm_front, wait_complete

ASK_S = 240.0
_DEATH_S = 30.0
_POLL_S = 0.05


class VllmOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result, as written by --json."""

    version: str
    model: str
    connector: str
    config_digest: str
    verdicts: tuple[VllmVerdict, ...]
    skipped: tuple[str, ...] = ()
    """Cases that need servers which are started here."""
    duration_s: float = 0.0

    @property
    def same(self) -> bool:
        """There was something to compare, and all of it agrees."""
        return bool(self.verdicts) and all(verdict.same for verdict in self.verdicts)


Answers = dict[tuple[str, str], Answer]


async def run_compare(config: BatonConfig, names: Sequence[str], console: Console) -> VllmOutcome:
    """Ask both sides. Raises BatonError when one cannot run."""
    started_s = time.monotonic()
    salt = uuid.uuid4().hex
    if config.vllm.is_attached:
        async with ready_front(config) as front:
            servers = front.backend.servers
            plain = (servers.up(Role.MIXED) or servers.up(Role.DECODE))[0]
            cases = _chosen(await _cases(plain.url, config), names)
            here = [case for case in cases if case.restart is None]
            alone = await _side(plain.url, None, here, salt + "alone", console)
            pair = await _side(front.url, front, here, salt + "pair", console)
            skipped = tuple(case.name for case in cases if case.restart is not None)
    else:
        cluster = msgspec.structs.replace(config.cluster, prefill=0, decode=0, mixed=1)
        one = msgspec.structs.replace(config, cluster=cluster)
        async with ready_front(one) as front:
            (plain,) = front.backend.servers.up(Role.MIXED)
            here = _chosen(await _cases(plain.url, config), names)
            alone = await _side(plain.url, None, here, salt + "alone", console)
        async with ready_front(config) as front:
            pair = await _side(front.url, front, here, salt + "pair", console)
            skipped = ()
    return VllmOutcome(
        version=__version__,
        model=config.model.name,
        connector=config.vllm.connector,
        config_digest=config.digest,
        verdicts=tuple(_verdicts(here, alone, pair)),
        skipped=skipped,
        duration_s=time.monotonic() - started_s,
    )


@asynccontextmanager
async def ready_front(config: BatonConfig) -> AsyncIterator[VllmFront]:
    """A front on a free port whose servers all answer."""
    gateway = msgspec.structs.replace(config.gateway, host="127.0.0.1", port=0)
    config = msgspec.structs.replace(config, gateway=gateway)
    async with open_vllm_front(config) as front:
        await wait_complete(front, config.cluster.start_timeout_s)
        yield front


async def _cases(url: str, config: BatonConfig) -> tuple[VllmCase, ...]:
    size = max(32, config.worker.block_size)
    async with aiohttp.ClientSession() as session:
        body = {"prompt": " " + " ".join(WORDS)}
        async with session.post(f"{url}/tokenize", json=body) as response:
            if response.status != 200:
                raise BatonError(f"{url}/tokenize answers {response.status}")
            tokens = msgspec.json.decode(await response.read())["tokens"]
    return vllm_cases(size, sorted(set(tokens)))


def _chosen(cases: Sequence[VllmCase], names: Sequence[str]) -> list[VllmCase]:
    known = {case.name for case in cases}
    if unknown := sorted(set(names) - known):
        raise ConfigError(
            f"--case {unknown[0]}: there is no such case; use one of {', '.join(sorted(known))}"
        )
    return [case for case in cases if not names or case.name in names]


async def _side(
    url: str, front: VllmFront | None, cases: Sequence[VllmCase], salt: str, console: Console
) -> Answers:
    """Every answer of one side; without a front it is the plain server, and nobody is killed."""
    answers: Answers = {}
    async with aiohttp.ClientSession() as session:
        for case in cases:
            for number, bodies in enumerate(case.rounds):
                if number and case.restart is not None and front is not None:
                    await _restart(front, case.restart)
                salted = [{**body, "cache_salt": salt + case.name} for body in bodies]
                found = await asyncio.gather(*(ask(session, url, one, ASK_S) for one in salted))
                for index, answer in enumerate(found):
                    answers[case.name, f"{number}.{index}"] = answer
    side = "plain vLLM" if front is None else "pair"
    console.print(f"{side}: {len(answers)} answers", highlight=False)
    return answers


async def _restart(front: VllmFront, role: Role) -> None:
    """Kill the server of a role and wait for a pair with its next life."""
    assert front.processes is not None
    (slot, *_) = [slot for slot in front.processes.slots if slot.server.role is role]
    epoch = slot.server.epoch
    slot.kill()
    async with asyncio.timeout(_DEATH_S):
        while slot.server.is_up:
            await asyncio.sleep(_POLL_S)
    await wait_complete(front, front.backend.config.cluster.start_timeout_s)
    if slot.server.epoch == epoch:
        raise BatonError(f"{slot.server.server_id} came back as the life that was killed")


def _verdicts(cases: Sequence[VllmCase], alone: Answers, pair: Answers) -> list[VllmVerdict]:
    verdicts = []
    for case in cases:
        for number, bodies in enumerate(case.rounds):
            for index in range(len(bodies)):
                label = f"{number}.{index}"
                last = number == len(case.rounds) - 1
                verdicts.append(
                    judge(
                        case.name,
                        label,
                        alone[case.name, label],
                        pair[case.name, label],
                        mode="disaggregated" if case.is_split else "colocated",
                        reused=case.reused if last else None,
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
    if outcome.skipped:
        names = ", ".join(outcome.skipped)
        console.print(f"skipped, servers are not ours to restart: {names}", highlight=False)
    different = sum(not verdict.same for verdict in outcome.verdicts)
    result = "equal" if outcome.same else f"{different} DIFFERENT"
    console.print(
        f"{result}: {len(outcome.verdicts)} requests "
        f"of a vLLM pair by {outcome.connector} against plain vLLM; compared tokens, texts, ends, "
        f"usage and logprobs; {outcome.model}, configuration {outcome.config_digest}, "
        f"{outcome.duration_s:.0f} s",
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
