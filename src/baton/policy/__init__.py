"""Pure functions over snapshots: batching, routing, prediction, transfer schedules."""
