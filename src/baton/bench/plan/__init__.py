"""The page of `baton plan`."""
