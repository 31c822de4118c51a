"""Measured operator tables, composed into the step of a model: AIConfigurator, Vidur, Frontier."""
