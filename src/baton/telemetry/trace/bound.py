"""What bound a request, in one sentence that says what to look at."""

from baton.core.units import shown_nbytes
from baton.telemetry.trace.phases import PHASES, Phase
from baton.telemetry.trace.story import Story
from baton.telemetry.trace.vocabulary import BY_LEGS

_WHY = {
    Phase.ARRIVAL: "the gateway was busy reading or tokenizing, a long body or a laden event loop",
    Phase.RETRY: "attempts failed before this one",
    Phase.FETCH: "a cached prefix was copied to the prefill worker first",
    Phase.WAIT: "no pair of workers had room, so the request waited at the router",
    Phase.ROUTE: "reservation and grant are two round trips, and router or workers were busy",
    Phase.QUEUE: "the prompt waited behind others at its prefill worker, more prefill would help",
    Phase.PREFILL: "the prompt was computed, and only a faster or less shared engine helps",
    Phase.PREFILL_LEG: "queue and prompt at the prefill server, which does not tell them apart",
    Phase.TRANSFER: "K/V was still moving when the prompt was done, so the link bounds it",
    Phase.VALIDATE: "the manifest and its checks came late, after every byte was there",
    Phase.PUBLISH: "the destination was busy between its checks and the publication",
    Phase.ADMISSION: "decode took the published entry late",
    Phase.DECODE_LEG: "its server does not tell its steps apart",
    Phase.FIRST_TOKEN: "the token was there, and router, gateway or socket gave it out late",
}
_NAMES = {Phase.FIRST_TOKEN: "its delivery"}
"""Of phases whose own name would not make a sentence."""


def bound_of(story: Story) -> Phase | None:
    """The phase that took most of the time; None for a request without any."""
    tiling = story.tiling
    if tiling is None or not tiling.total_us:
        return None
    return max(PHASES, key=tiling.of)


def explain(story: Story) -> str:
    """One sentence: how it ended, what took the time, and why that was so."""
    phase = bound_of(story)
    if phase is None or story.tiling is None:
        return f"{_ending(story)}."
    share = story.tiling.of(phase) / story.tiling.total_us
    name = _NAMES.get(phase, str(phase))
    text = f"{_ending(story)}; {name} took {ms(story.tiling.of(phase))} of it ({share:.0%}): "
    return text + _because(story, phase) + "."


def _ending(story: Story) -> str:
    if story.is_whole and story.tiling:
        took = ms(story.tiling.total_us)
        return f"whole answer after {took} ({_route(story)}), its first token was not observed"
    if story.ttft_us:
        route = _route(story)
        ended = "" if story.state in ("finished", "open") else f", later {story.state}"
        return f"first token after {ms(story.ttft_us)} ({route}){ended}"
    took = f" after {ms(story.tiling.total_us)}" if story.tiling else ""
    reason = f" ({story.reason})" if story.reason else ""
    return f"{story.state}{took} without a token{reason}"


def _route(story: Story) -> str:
    if story.mode == "disaggregated":
        return f"{story.prefill} to {story.decode}"
    if story.decode:
        return f"{story.mode} on {story.decode}"
    return story.mode or "unrouted"


def _because(story: Story, phase: Phase) -> str:
    """The general reason, with what is known of this request."""
    text = _WHY[phase]
    if phase is Phase.RETRY and story.failures:
        return f"{len(story.failures)} failed before this one, last: {story.failures[-1]}"
    if phase is Phase.PREFILL and story.num_tokens:
        computed = story.num_tokens - story.cached_tokens
        cached = f", {story.cached_tokens} were cached" if story.cached_tokens else ""
        return f"{text} ({computed} rows computed{cached})"
    if phase is Phase.DECODE_LEG:
        return _decode_leg(story)
    if phase is Phase.TRANSFER and story.ledger.logical_nbytes:
        return f"{text} ({shown_nbytes(story.ledger.physical_nbytes)} moved)"
    return text


def _decode_leg(story: Story) -> str:
    """What this leg held depends on how much of the request somebody saw."""
    if story.mode != "disaggregated":
        held = "queue, prompt and first step"
    elif story.observed == BY_LEGS:
        held = "transfer, publication, queue and first step of decode"
    else:
        held = "from publication: queue and first step of decode"
    whole = " and every further one" if story.is_whole else ""
    return f"{held}{whole}, which {story.decode} does not tell apart"


def ms(duration_us: float) -> str:
    """Microseconds as milliseconds, with as many digits as mean something; below 10 as they are."""
    if 0 < duration_us < 10:
        return f"{duration_us:.0f} us"
    digits = 0 if duration_us >= 100_000 else 1 if duration_us >= 10_000 else 2
    return f"{duration_us / 1000:.{digits}f} ms"
