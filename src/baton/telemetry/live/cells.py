"""Workload cells: requests of about the same size, whose targets are judged together (0x0FF)."""

from baton.telemetry.trace.story import Story

_PROMPT_BOUNDS = (128, 512, 2048, 8192)
_OUTPUT_BOUNDS = (32, 128, 512)


def cell_of(story: Story) -> str:
    """The cell of a request by its prompt and output tokens, such as `prompt<=512 output<=128`."""
    prompt = _bucket(story.num_tokens, _PROMPT_BOUNDS)
    return f"prompt{prompt} output{_bucket(story.num_output_tokens, _OUTPUT_BOUNDS)}"


def _bucket(num_tokens: int, bounds: tuple[int, ...]) -> str:
    for bound in bounds:
        if num_tokens <= bound:
            return f"<={bound}"
    return f">{bounds[-1]}"
