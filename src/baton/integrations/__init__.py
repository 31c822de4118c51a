"""Baton inside and around other systems: each package here is the border to one of them."""
