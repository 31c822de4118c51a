"""KV-Runahead: where to cut a long prompt between processes that hand their K/V on (0x0CA)."""
