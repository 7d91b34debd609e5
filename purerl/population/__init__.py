"""Populations: many trainings in one program, their placement on devices, their cost, and selection among them."""

from purerl.population.layouts import AXIS, CPU_LANES, Layout, layout, place, spread
from purerl.population.membership import Members, members
from purerl.population.train import plan, train_population

__all__ = ["AXIS", "CPU_LANES", "Layout", "Members", "layout", "members", "place", "plan", "spread", "train_population"]
