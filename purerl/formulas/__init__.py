"""Formulas: returns, TD errors, losses, distributions, exploration, schedules and aggregates.

None of them depends on an algorithm.
"""

__all__ = ["aggregates", "distributions", "losses", "returns", "schedules", "td_errors"]
