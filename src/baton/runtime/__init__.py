"""The real host: event loop, control channel, data plane, processes, HTTP gateway."""
