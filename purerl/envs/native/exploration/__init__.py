"""Environments in which dithering finds nothing: where to go must be learned from what is new."""
