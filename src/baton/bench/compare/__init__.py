"""Proof by replay: the same requests colocated and disaggregated must agree bit for bit."""
