"""Colocated serving throughput beside other engines: same model, same cores, same client."""
