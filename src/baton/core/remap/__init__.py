"""From one engine's partition of a K/V cache to another's: who sends which bytes to whom."""
