"""Measurements: handoff benchmarks and exactness comparisons."""
