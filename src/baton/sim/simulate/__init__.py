"""`baton simulate`: a trace through the production nodes on named or measured hardware."""
