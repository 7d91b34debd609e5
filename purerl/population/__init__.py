"""Populations: many trainings in one program, their placement on devices, their cost, and selection among them."""

from purerl.population import selection
from purerl.population.layouts import Layout, layout
from purerl.population.membership import Members, members
from purerl.population.train import plan, train_population

__all__ = ["Layout", "Members", "layout", "members", "plan", "selection", "train_population"]
