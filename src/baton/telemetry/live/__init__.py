"""What is kept and counted of requests while they are served, folded from the trace events."""
