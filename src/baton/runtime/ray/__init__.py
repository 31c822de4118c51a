"""Workers on the nodes of a Ray cluster. Without the extra `ray` nothing of it can be imported."""
