"""The simulated host: virtual time, modelled network and hardware, faults, outside checkers."""
