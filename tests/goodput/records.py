"""Records of requests made by hand."""

from baton.goodput.record import Outcome, RequestRecord

MS = 1000


def record(
    ttft_ms: float = 100,
    tpot_ms: float = 10,
    *,
    num_tokens: int = 11,
    at_ms: float = 0,
    outcome: Outcome = Outcome.COMPLETED,
    tail_ms: float = 0,
) -> RequestRecord:
    """Tokens in equal steps after the first; `tail_ms` from the last token to the end."""
    at_us = round(at_ms * MS)
    first_us = at_us + round(ttft_ms * MS)
    times = tuple(first_us + round(index * tpot_ms * MS) for index in range(num_tokens))
    end_us = (times[-1] if times else first_us) + round(tail_ms * MS)
    return RequestRecord(
        request_id=f"r{at_us}",
        scheduled_us=at_us,
        sent_us=at_us,
        token_times_us=times,
        end_us=end_us,
        num_prompt_tokens=7,
        num_output_tokens=num_tokens,
        outcome=outcome,
    )
