"""Environments of the host: Python or C++, stepped in numpy, in this process or in workers. Needs no JAX."""
