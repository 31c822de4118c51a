"""X5: a bounded set of `baton compare`'s cases, colocated against split."""

from rich.console import Console

from baton.bench.compare.builtin import builtin_cases
from baton.bench.compare.command import make_plan, run_compare
from baton.bench.compare.report import Outcome
from baton.bench.effects.effect import Effect
from baton.config import BatonConfig, load_config

_FAMILIES = ("length-", "hit-")
_ALSO = ("sampling-greedy", "batch-prompts", "batch-alone", "turns")


def chosen_cases(config: BatonConfig) -> tuple[str, ...]:
    """Block and step edges, every cache-hit length, greedy answers, batches and turns."""
    names = [case.name for case in builtin_cases(config.worker)]
    return tuple(name for name in names if name.startswith(_FAMILIES) or name in _ALSO)


async def measure_exactness(model: str) -> Effect:
    """Run the comparison and count what differs."""
    config = load_config(None, [f'model.name="{model}"'])
    plan = make_plan(config, None, chosen_cases(config), every_arm=False)
    return judge_exactness(await run_compare(plan, Console(quiet=True)))


def judge_exactness(outcome: Outcome) -> Effect:
    """Every verdict of every arm; nothing compared is nothing proven."""
    verdicts = [verdict for one in outcome.comparisons for verdict in one.verdicts]
    different = [f"{v.case} {v.label}: {v.differences[0].text}" for v in verdicts if not v.same]
    records = [verdict.candidate for verdict in verdicts if verdict.candidate]
    num_tokens = sum(len(record.tokens) for record in records)
    num_digests = sum(bool(record.kv_digest) for record in records)
    exact = outcome.deterministic and all(one.exact for one in outcome.comparisons)
    kind = "bit-exact" if exact else "validated approximate"
    return Effect(
        id="X5",
        title="Exactness: colocated against split",
        measured=(
            f"{len(verdicts)} requests in {len({v.case for v in verdicts})} cases, "
            f"{num_tokens} tokens, {num_digests} K/V digests, "
            f"{sum(one.handoffs for one in outcome.comparisons)} handoffs: "
            f"{len(different)} differ ({kind}: tokens, logits and K/V digests)"
        ),
        accept="0 mismatches of tokens, logits and K/V; else validated approximate",
        met=outcome.same and exact,
        figures={
            "num_requests": len(verdicts),
            "num_tokens": num_tokens,
            "num_mismatches": len(different),
            "kind": kind,
            "different": different,
            "duration_s": outcome.duration_s,
        },
    )
