"""Two Ray nodes on this machine, a deployment across them, and what it survives."""
