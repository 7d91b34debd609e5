"""Policies read back from a run directory, and played."""

import reprlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import population, trees
from purerl.errors import ConfigError
from purerl.loops.evaluation import evaluate
from purerl.runs.description import Description, Setup
from purerl.runs.swept import env_part
from purerl.store import policies
from purerl.types import Env, Learner, PyTree

EVALUATION_SALT = 2**31
"""Folded into a seed's key before it is evaluated, so that evaluating touches no key of the training."""


class Run(NamedTuple):
    """A trained run, read back: ``policy`` has a leading axis of agents ``[P]``, in the order of ``setup.labels``."""

    saved: dict[str, Any]
    setup: Setup
    env: Env
    learner: Learner
    policy: PyTree


def load(directory: str | Path, *, trust: bool = False) -> Run:
    """Reads the policies of a run directory, which is untrusted. Raises `ConfigError` for none, or damaged ones.

    A run with an algorithm or an environment of anybody's own, a ``MODULE:ATTRIBUTE``, is refused unless ``trust``:
    its module is imported.

    ``run.learner.exploit(jax.tree.map(lambda x: x[i], run.policy), obs, run.learner.init_carry(B), key)`` acts as agent
    ``i`` does in observations ``[B, ...]``.
    """
    path = Path(directory) / policies.DESCRIPTION
    saved = policies.load_description(Path(directory))
    description = Description.of_json(saved, str(path), trust=trust)
    size = len(description.seeds) * len(next(iter(description.swept.values()), [0]))
    members = saved.get("members")
    if type(members) is not int or not 1 <= members <= size:
        raise ConfigError(f"{path}: members = {reprlib.repr(members)}: must be a whole number in [1, {size}]")
    try:
        policy = policies.load_policy(Path(directory), saved, shapes(description, members))
        setup = Setup.of(description).first(members)
        env = setup.make_env(env_part(setup.swept, 0))
        learner = setup.make_trainer(config=setup.config, env_params=env_part(setup.swept, 0)).learner
    except ConfigError as error:
        lines = (line if str(directory) in line else f"{path}: {line}" for line in str(error).splitlines())
        raise ConfigError("\n".join(lines)) from None
    except Exception as error:  # sizes that no machine can hold raise errors of any type, of several libraries
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{path}: not a run that can be built ({reason[:200]})") from error
    return Run(saved, setup, env, learner, policy)


def shapes(description: Description, members: int) -> PyTree:
    """The shapes of ``members`` policies. Nothing is allocated, whatever sizes the description names."""
    first = {name: column[:1] for name, column in description.swept.items()}
    setup = Setup.of(description._replace(seeds=description.seeds[:1], swept=first))

    def fresh(key):
        learner = setup.make_trainer(config=setup.config, env_params=env_part(setup.swept, 0)).learner
        _, obs = setup.make_env(env_part(setup.swept, 0)).reset(key)
        return learner.policy(learner.init(key, obs[None]))

    like = jax.eval_shape(fresh, jax.random.key(0))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), like)


def evaluate_run(directory: Path, episodes: int, max_steps: int, seed: int, *, trust: bool = False) -> dict[str, Any]:
    """Plays the policies of a run directory, which is only read. Raises `ConfigError` as `load` does, which ``trust``
    is for."""
    run = load(directory, trust=trust)
    return {
        "run": str(directory),
        **{name: run.saved[name] for name in ("algo", "env", "seeds", "swept")},
        "members": run.setup.labels,
        "episodes": episodes,
        **play(run.setup, run.policy, episodes, max_steps, seed=seed),
    }


def play(
    setup: Setup, policy: PyTree, episodes: int, max_steps: int, *, seed: int = 0, batch_size: int | None = None
) -> dict[str, Any]:
    """Plays ``episodes`` with each member's policy, in its own environment; lists have an entry for each member.

    The episodes follow from the member's key and ``seed``; those of seed 0 end a training. ``batch_size`` members play
    at once (default: all).
    """
    size = setup.members.size
    layout = population.layout(min(batch_size or size, size))
    fold = lambda key: jax.random.fold_in(jax.random.fold_in(key, EVALUATION_SALT), seed)  # noqa: E731
    everyone = setup.members.given, jax.vmap(fold)(setup.members.keys), policy

    def one(member, state):
        given, key, policy = member
        env = setup.make_env(given.get("env_params"))
        return state, evaluate(key, env, setup.make_trainer(**given).learner, policy, episodes, max_steps)

    program, found = jax.jit(population.spread(one, layout)), []
    for first in range(0, size, layout.size):
        batch = trees.take(everyone, slice(first, first + layout.size))
        found.append(jax.device_get(program(population.place(batch, layout), ())[1]))
    episode_return, length, finished = (np.concatenate(x)[:size] for x in zip(*found, strict=True))
    per_seed = episode_return.mean(axis=1, dtype=np.float64)
    return {
        "return_mean": float(per_seed.mean()),
        "return_per_seed": per_seed.tolist(),
        "return_std_per_seed": episode_return.std(axis=1, dtype=np.float64).tolist(),
        "length_per_seed": length.mean(axis=1).tolist(),
        "unfinished_per_seed": (~finished).sum(axis=1).tolist(),
    }
