"""What a predictor raises where it has no measurement."""

from baton.errors import ConfigError


class MissingCell(ConfigError):
    """A model, system or cut that the source has no measurement of; the text says what it has."""
