"""Curricula: the levels in which an agent is trained, as bundles of pure functions."""

from purerl.curricula.buffer import Buffer
from purerl.curricula.curriculum import Curriculum, Plan, accel, replay, sfl
from purerl.curricula.teacher import builder, built

__all__ = ["Buffer", "Curriculum", "Plan", "accel", "builder", "built", "replay", "sfl"]
