"""What a step of vLLM 0.19 takes beside its kernels: the same for every case.

With asynchronous scheduling the host works while the GPU does; what stays between two steps is 150
to 170 us measured (vllm-project/vllm#11133) and 200 to 300 us estimated (#10634). A step that
computes prompts has no CUDA graph: its inputs are prepared and its kernels are launched one by one
while a decode step runs, which is often too short to hide that. Lone prompts in the runs of
Llama-3.1-8B on one and of Qwen3-32B on two RTX PRO 6000 show 1 to 6 ms of it, the more the shorter
that step is; 2 ms stands for all.
"""

STEP_US = 300.0
PROMPT_STEP_US = 2000.0
"""More for a step that computes rows of prompts."""
