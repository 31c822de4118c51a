"""DeepSeek's published day: its capacities and its loads must give its node count and margin."""

from baton.planner.reproduce.context import Context, Reproduction
from baton.planner.reproduce.row import Row, number_row

SECONDS = 86_400
INPUT_TOKENS, OUTPUT_TOKENS = 608e9, 168e9
PREFILL_PER_NODE, DECODE_PER_NODE = 73.7e3, 14.8e3
"""Tokens a second of one node of eight GPUs."""
MEAN_NODES = 226.75
GPUS_PER_NODE = 8
PRICE_PER_GPU_HOUR = 2.0
COST, MARGIN = 87_072.0, 5.45
CACHED_TOKENS = 342e9
PRICE_CACHED, PRICE_INPUT, PRICE_OUTPUT = 0.14e-6, 0.55e-6, 2.19e-6
"""R1's list prices of a token, in dollars."""


def nodes_needed() -> tuple[float, float]:
    """Prefill and decode nodes for the day's mean load."""
    return (
        INPUT_TOKENS / SECONDS / PREFILL_PER_NODE,
        OUTPUT_TOKENS / SECONDS / DECODE_PER_NODE,
    )


def day_cost(num_nodes: float) -> float:
    """Dollars of a day."""
    return num_nodes * GPUS_PER_NODE * PRICE_PER_GPU_HOUR * SECONDS / 3600


def day_margin(cost: float) -> float:
    """Profit over cost, if every token were sold at list price."""
    missed = INPUT_TOKENS - CACHED_TOKENS
    income = CACHED_TOKENS * PRICE_CACHED + missed * PRICE_INPUT + OUTPUT_TOKENS * PRICE_OUTPUT
    return (income - cost) / cost


def _run(context: Context) -> list[Row]:
    prefill, decode = nodes_needed()
    cost = day_cost(MEAN_NODES)
    why = "arithmetic on the published day; the cached 56 % counts as input, as published"
    return [
        number_row(
            "r24",
            "nodes for the mean load",
            target=f"{MEAN_NODES} nodes",
            measured=prefill + decode,
            low=MEAN_NODES * 0.995,
            high=MEAN_NODES * 1.005,
            unit="nodes",
            why=f"{prefill:.1f} prefill + {decode:.1f} decode; {why}",
        ),
        number_row(
            "r24",
            "cost of the day",
            target=f"${COST:,.0f}",
            measured=cost,
            low=COST * 0.995,
            high=COST * 1.005,
            unit="$",
            why="at $2 for a GPU hour",
        ),
        number_row(
            "r24",
            "theoretical margin",
            target=f"{MARGIN:.0%}",
            measured=day_margin(cost),
            low=MARGIN * 0.995,
            high=MARGIN * 1.005,
            why="every token at the list price of R1",
        ),
    ]


REPRODUCTION = Reproduction(
    target_id="r24",
    title="DeepSeek: capacity of a production day",
    source="DeepSeek open-infra-index, day 6",
    run=_run,
)
