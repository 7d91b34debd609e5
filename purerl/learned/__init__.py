"""Learned functions: the sockets of algorithms that they plug into, their networks, closed forms and files."""

SOCKET_NAMES = "value-loss", "policy-drift", "td-loss", "vtrace-weight", "rule", "optimiser"
"""The names of all sockets, which `sockets.SOCKETS` makes; they need no JAX."""
