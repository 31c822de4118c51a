"""Where prefill and decode instances go: phase goodputs, replicas, packing, paths, residency."""
