"""The controller of P/D counts on the simulated host, beside static plans."""
