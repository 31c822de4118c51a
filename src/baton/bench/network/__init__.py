"""How fast K/V moves between two network namespaces of this machine, beside raw NIXL."""
