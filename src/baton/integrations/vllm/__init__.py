"""vLLM's K/V connector with Baton's handoff transaction; `connector` alone imports vLLM."""
