"""The handoff transaction: state tables, destination, source, credits, directory."""
