"""Checks of what the functions of a learner return, made while they are traced: they change no program."""

import operator
from typing import Any

import jax

from purerl.errors import ConfigError
from purerl.names import tell_once
from purerl.types import Key, Learner, PyTree, Situation, Updated

Shapes = dict[str, str]


def checked(name: str, learner: Learner) -> Learner:
    """Returns ``learner`` with checks that its functions return what `types.Learner` requires.

    `explore`, `exploit`, `sample` and `update` raise `ConfigError`, in a line, when they are traced and return
    something else.

    Args:
        name: Name of the algorithm, for messages.
        learner: The learner to check.
    """

    def several(function: str, made: Any, parts: tuple[str, ...]) -> Any:
        if isinstance(made, tuple) and len(made) == len(parts):
            return made
        raise ConfigError(f"{name}: {function}: must return ({', '.join(parts)}), but returns {_words(made)}")

    def explore(behaviour: PyTree, situation: Situation, noise: PyTree) -> Any:
        made = learner.explore(behaviour, situation, noise)
        return several("explore", made, ("action", "carry", "extras"))

    def exploit(policy: PyTree, situation: Situation, key: Key) -> Any:
        return several("exploit", learner.exploit(policy, situation, key), ("action", "carry"))

    def sample(policy: PyTree, situation: Situation, key: Key) -> Any:
        draw: Any = learner.sample
        return several("sample", draw(policy, situation, key), ("action", "carry"))

    def update(state: PyTree, given: Any, key: Key) -> Updated:
        updated = learner.update(state, given, key)
        if not isinstance(updated, Updated):
            raise ConfigError(f"{name}: update: must return a purerl.types.Updated, but returns {_words(updated)}")
        if not isinstance(updated.metrics, dict) or "loss" not in updated.metrics:
            raise ConfigError(f"{name}: update: must return metrics by name, with a loss among them")
        if wrong := [f"{metric!r} is {_kind(x)}" for metric, x in updated.metrics.items() if _kind(x)]:
            raise ConfigError(f"{name}: update: must return metrics that are numbers []; {', '.join(wrong)}")
        leaves = jax.tree.leaves(state)
        others = jax.tree.leaves(updated.state)
        if leaves and len(leaves) == len(others) and all(map(operator.is_, leaves, others)):
            tell_once(f"{name}: update: returns the state that it was given, so that nothing is learned")
        if problem := _change(_shapes(state), _shapes(updated.state)):
            raise ConfigError(f"{name}: update: {problem}")
        return updated

    drawn = sample if learner.sample else None
    return learner._replace(explore=explore, exploit=exploit, update=update, sample=drawn)


def _change(before: Shapes, after: Shapes) -> str:
    """Describes how an update changed leaves of a state that must keep shape and type; empty if it changed none."""
    lines = [f"returns a state that lacks state{leaf}" for leaf in before if leaf not in after]
    lines += [f"returns a state that has state{leaf} more" for leaf in after if leaf not in before]
    changed = [leaf for leaf in before if after.get(leaf, before[leaf]) != before[leaf]]
    lines += [f"state{leaf}: {before[leaf]} before, but {after[leaf]} after" for leaf in changed]
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"{lines[0]}{more}" if lines else ""


def _shapes(tree: PyTree) -> Shapes:
    """Returns the types and shapes of leaves by path."""
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(lambda: tree))
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}


def _kind(metric: Any) -> str:
    """Describes a metric that is no number; empty if it is one."""
    if isinstance(metric, int | float):
        return ""
    if not hasattr(metric, "shape") or not hasattr(metric, "dtype"):
        return type(metric).__name__
    return f"{metric.dtype}{list(metric.shape)}" if metric.shape else ""


def _words(made: Any) -> str:
    return f"a tuple of {len(made)}" if type(made) is tuple else type(made).__name__
