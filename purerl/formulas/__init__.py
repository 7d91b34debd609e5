"""Formulas: returns, TD errors, losses, distributions, exploration, schedules and aggregates.

None of them depends on an algorithm.
"""
