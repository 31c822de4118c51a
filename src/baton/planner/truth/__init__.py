"""Measured runs of a real engine beside what is predicted for them from layer timings."""
