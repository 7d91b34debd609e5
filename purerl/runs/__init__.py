"""Runs: described, carried out into a directory of results, read back, and exported."""
