"""Planted bugs: one changed line each, and the checker or test that must notice it."""
