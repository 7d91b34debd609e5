"""Runs: their description, their execution in a directory of results, and the reading and export of results."""
