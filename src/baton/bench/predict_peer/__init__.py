"""AIConfigurator's own predictions of the same deployments, beside ours."""
