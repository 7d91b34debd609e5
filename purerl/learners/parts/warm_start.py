"""Warm starts: a learner that begins with what another training has learned, and is new in all else."""

from typing import Any, NamedTuple

import jax

from purerl import trees
from purerl.errors import ConfigError
from purerl.learners.parts.stale_actors import History, StaleActors, begin
from purerl.types import Key, Learner, PyTree


class Beginning(NamedTuple):
    """What trainings begin with: policies as `Learner.policy` returns them, and critics as `Learner.critics` does.

    Critics that it lacks are new.
    """

    policy: PyTree
    critics: dict[str, PyTree] = {}


def warm(learner: Learner, begun: Beginning) -> Learner:
    """Returns ``learner`` with states that begin with the parameters and moments of a policy, and with its critics.

    What begins as these do, such as target networks and past versions, begins with them, too. Optimisers and counts are
    new, and so are critics that ``begun`` lacks. The learner's ``init`` raises `ConfigError` for a policy or critics of
    another kind (`problem`), and if its policies are no part of its state.
    """

    def init(key: Key, obs: PyTree) -> Any:
        state = learner.init(key, obs)
        own = Beginning(learner.policy(state), among(begun.critics, learner.critics(state) if learner.critics else {}))
        if line := problem(own.policy, begun.policy) or problem(own.critics, begun.critics, "critics"):
            raise ConfigError(line)
        given = {id(leaf): new for leaf, new in zip(jax.tree.leaves(own), jax.tree.leaves(begun), strict=True)}
        if not given.keys() <= {id(leaf) for leaf in jax.tree.leaves(state)}:
            raise ConfigError("warm_start: is not supported by a learner that computes its policy from its state")
        state = jax.tree.map(lambda leaf: given.get(id(leaf), leaf), state)
        newest = state.acting if isinstance(state, StaleActors) else getattr(state, "params", None)
        is_history = lambda x: isinstance(x, History)
        anew = lambda x: begin(newest, len(x.versions) - 1) if is_history(x) else x
        return jax.tree.map(anew, state, is_leaf=is_history)

    return learner._replace(init=init)


def among(names: Any, critics: dict[str, PyTree]) -> dict[str, PyTree]:
    """Returns those of ``critics`` whose names are in ``names``."""
    return {name: critic for name, critic in critics.items() if name in names}


def problem(own: PyTree, given: PyTree, what: str = "policies") -> str:
    """Describes in a line the first difference of a tree from that of a training; empty if there is none.

    Args:
        own: That of the training, such as a policy, of arrays or `jax.ShapeDtypeStruct`s.
        given: The tree in question, of arrays or `jax.ShapeDtypeStruct`s.
        what: What it is, in words.
    """
    expected = trees.named_leaves(own)
    found = trees.named_leaves(given)
    for name in [*expected, *found]:
        if name not in found:
            return f"{name}: is missing in it"
        if name not in expected:
            return f"{name}: is in it, and not in the {what} of this training"
        here, there = (f"{x.dtype}{list(x.shape)}" for x in (expected[name], found[name]))
        if here != there:
            return f"{name}: is {there} in it, and {here} in this training"
    same: Any = [jax.tree.structure(tree) for tree in (own, given)]
    return "" if same[0] == same[1] else f"its {what} are of another kind than those of this training"
