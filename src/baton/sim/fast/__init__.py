"""The fast simulated host: events at the level of iterations, no messages, compiled loops."""
