"""By how much LLMServingSim 2.0 itself misses its measured runs, as its authors print it."""

PEER = "LLMServingSim"
PEER_ERRORS = {
    "RTXPRO6000_Llama-3.1-8B": (-4.0, -8.6, -2.0, -1.0, 0.6, -1.8),
    "RTXPRO6000_Qwen3-32B": (1.3, 1.7, 0.9, 0.8, 1.3, 1.0),
    "RTXPRO6000_Qwen3-30B-A3B": (-13.6, -21.8, -1.0, -1.7, -0.5, -2.2),
    "RTX4090_Llama-3.1-8B": (0.6, 0.8, 0.3, 0.2, 0.9, 0.5),
}
"""Percent of TTFT mean, median, P99; TPOT mean, P99; latency mean. It takes 156 s for the first
case (casys-kaist/LLMServingSim at 5daddb2, bench/examples)."""


def peer_errors(case: str) -> tuple[float, ...] | None:
    """By the case's name, which may say more of the model's variant."""
    for name, errors in PEER_ERRORS.items():
        if case == name or case.startswith(f"{name}-"):
            return errors
    return None
