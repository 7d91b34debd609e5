"""Environments in which random exploration finds nothing: an agent must seek what is new."""
