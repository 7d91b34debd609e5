"""Warm starts: a learner that begins with the policy of another training, and is new in all else."""

from typing import Any

import jax

from purerl import trees
from purerl.errors import ConfigError
from purerl.learners.parts.stale_actors import History, StaleActors, begin
from purerl.types import Key, Learner, PyTree


def warm(learner: Learner, policy: PyTree) -> Learner:
    """Returns ``learner`` with states that begin with the parameters and moments of ``policy``.

    What begins as these do, such as a target network and past versions, begins with them, too. Optimisers and counts
    are new, and so is what no policy holds, such as the critics of SAC. The learner's ``init`` raises `ConfigError` for
    a policy of another kind (`problem`), and if its policies are no part of its state.

    Args:
        learner: The learner.
        policy: A policy as `Learner.policy` returns it.
    """

    def init(key: Key, obs: PyTree) -> Any:
        state = learner.init(key, obs)
        own = learner.policy(state)
        if line := problem(own, policy):
            raise ConfigError(line)
        given = {id(leaf): new for leaf, new in zip(jax.tree.leaves(own), jax.tree.leaves(policy), strict=True)}
        if not given.keys() <= {id(leaf) for leaf in jax.tree.leaves(state)}:
            raise ConfigError("warm_start: is not supported by a learner that computes its policy from its state")
        state = jax.tree.map(lambda leaf: given.get(id(leaf), leaf), state)
        newest = state.acting if isinstance(state, StaleActors) else getattr(state, "params", None)
        is_history = lambda x: isinstance(x, History)
        anew = lambda x: begin(newest, len(x.versions) - 1) if is_history(x) else x
        return jax.tree.map(anew, state, is_leaf=is_history)

    return learner._replace(init=init)


def problem(own: PyTree, policy: PyTree) -> str:
    """Describes in a line the first difference of ``policy`` from the policies of a training; empty if there is none.

    Args:
        own: A policy of the training, of arrays or `jax.ShapeDtypeStruct`s.
        policy: The policy in question, of arrays or `jax.ShapeDtypeStruct`s.
    """
    expected = trees.named_leaves(own)
    given = trees.named_leaves(policy)
    for name in [*expected, *given]:
        if name not in given:
            return f"{name}: is missing in it"
        if name not in expected:
            return f"{name}: is in it, and not in the policies of this training"
        here, there = (f"{x.dtype}{list(x.shape)}" for x in (expected[name], given[name]))
        if here != there:
            return f"{name}: is {there} in it, and {here} in this training"
    same: Any = [jax.tree.structure(tree) for tree in (own, policy)]
    return "" if same[0] == same[1] else "its policies are of another kind than those of this training"
