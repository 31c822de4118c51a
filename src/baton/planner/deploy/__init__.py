"""Ready deployments of a plan: Baton's configuration, vLLM commands, Kubernetes manifests."""
