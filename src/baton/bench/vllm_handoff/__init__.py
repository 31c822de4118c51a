"""What the vLLM connector costs: time to the first token, and the decode step."""
