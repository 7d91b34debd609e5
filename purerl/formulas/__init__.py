"""Formulas: returns, losses, distributions, exploration, schedules and aggregates. They know no algorithm."""
