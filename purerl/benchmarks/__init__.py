"""Measures speed: workloads of this package, the processes that compute them by turns, and files of figures."""
