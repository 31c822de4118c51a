"""What caching saves with real processes: milestones over turns, and the disk tier."""
