"""Loops: rollouts, the trainers made of them, and evaluation."""

from purerl.loops.trainers import chunk, off_policy, on_policy, survive, train

__all__ = ["chunk", "off_policy", "on_policy", "survive", "train"]
