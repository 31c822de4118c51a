"""Composed state machines: the worker and the router."""
