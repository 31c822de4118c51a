"""Trace events of requests: what they are, the contract they keep, and what is folded from them."""
