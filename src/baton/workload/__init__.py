"""Requests to be served, as plain values: trace files, synthetic lengths and arrival processes."""
