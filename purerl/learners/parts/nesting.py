"""Layers around a learner, whose state holds that of the learner inside."""

from typing import Any

from purerl.types import Key, Learner, Metrics, Transition


def inside(learner: Learner, **functions: Any) -> Learner:
    """Returns a learner whose state holds that of ``learner`` in its field ``learner``.

    It does the same as ``learner``, except for ``functions``, fields of `Learner` by name.
    """

    def observe(state: Any, trajectory: Transition, key: Key) -> tuple[Any, Metrics]:
        observed, metrics = learner.observe(state.learner, trajectory, key)
        return state._replace(learner=observed), metrics

    critics: Any = learner.critics
    same = {
        "behaviour": lambda state: learner.behaviour(state.learner),
        "policy": lambda state: learner.policy(state.learner),
        "critics": critics and (lambda state: critics(state.learner)),
        "observe": observe,
    }
    return learner._replace(**{**same, **functions})
