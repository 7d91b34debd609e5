"""Learned functions: the sockets of algorithms that they plug into, their networks, closed forms and files."""

__all__ = ["sockets"]

ENV_SOCKET_NAMES = "cheap-talk", "levels"
"""The names of the sockets on the environment's side, which every algorithm has."""
SOCKET_NAMES = "value-loss", "policy-drift", "td-loss", "vtrace-weight", "lpg", "disco", "optimiser", *ENV_SOCKET_NAMES
"""The names of all sockets, which `sockets.SOCKETS` makes. They can be read without JAX."""
