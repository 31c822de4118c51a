"""vLLM pairs behind the gateway against plain vLLM: exactness, and faults under load."""
