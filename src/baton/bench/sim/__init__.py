"""The fast host's speed: against its limit, beside Dynamo's replay, and scaled to other peers."""
