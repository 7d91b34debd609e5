"""Environments that are written here."""
