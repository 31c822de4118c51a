"""Every interleaving of a small deployment: the production nodes, explored to the last state."""
