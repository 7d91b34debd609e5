"""Environments implemented in JAX in this package."""
