"""Loops: rollouts, the trainers made of them, and evaluation."""

from purerl.loops import evaluation, stopping
from purerl.loops.streaming import Stream
from purerl.loops.trainers import chunk, off_policy, offline, on_policy, train

__all__ = ["Stream", "chunk", "evaluation", "off_policy", "offline", "on_policy", "stopping", "train"]
