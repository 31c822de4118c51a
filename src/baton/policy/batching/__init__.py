"""Which rows run in the next engine step, as pure functions of the queue (specification 0x03A)."""
