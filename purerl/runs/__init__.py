"""Runs: from a description to a directory of results, and back."""
