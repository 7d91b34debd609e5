"""Errors that tell a user what to change."""


class ConfigError(ValueError):
    """Input that cannot be run. The text names the field, its value and what is allowed, one problem a line."""
