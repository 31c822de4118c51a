"""vLLM servers as workers: the gateway and router in front of them, and who starts them."""
