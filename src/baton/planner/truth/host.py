"""What a step of vLLM 0.19 takes beside its kernels.

Kernel timings alone come out short, by the same amounts for one GPU and 32 layers as for two and
64: between any two steps, and more where new prompts enter, because their inputs are prepared and
their kernels launched one by one (no CUDA graph) while a short decode step runs. The constants
are what the two published runs on RTX PRO 6000 show together; no case has its own.
"""

STEP_US = 500.0
PROMPT_STEP_US = 2000.0
"""More for a step that computes rows of prompts."""
