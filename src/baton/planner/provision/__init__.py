"""Which machines to buy: fleets by cost, power and throughput (specification 0x08K)."""
