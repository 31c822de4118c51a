"""Should prefill be split from decode, and how: search, placement, provisioning, verdicts."""
