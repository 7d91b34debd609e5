"""Datasets for tests of all algorithms, some of which need one."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from purerl import record, trees
from purerl.loops.evaluation import Player, random_player
from purerl.replay.fixed import dataset_problems, struct


def blank(algorithm, config, env):
    """The datasets that ``algorithm`` needs, by name, of one step of zeros. Nothing compiles."""
    if not algorithm.required:
        return {}
    seen = algorithm.view(config, env)
    data = trees.zeros(struct(seen.observation_space, seen.action_space, 1, 1))
    return dict.fromkeys(algorithm.required, data._replace(terminated=np.ones(1, bool)))


def given_demos(algorithm, env):
    """``algorithm`` with demonstrations of random play in ``env``; in other environments, with none that count."""
    demos = record(jax.random.key(0), env, random_player(env), 8, 50)

    def loop(config, other, learner):
        if not dataset_problems(demos, other.observation_space, other.action_space):
            return algorithm.loop(config, other, learner, demos=demos)
        alone = dataclasses.replace(config, demo_ratio=0.0)
        return algorithm.loop(alone, other, learner, **blank(algorithm, config, other))

    return algorithm._replace(loop=loop, datasets=())


def always_one(env):
    """A policy as somebody may have written it."""
    return Player(lambda here, key: (jnp.ones(len(here.obs), jnp.int32), here.carry), lambda rows: ())


def nobody(env):
    """No policy."""
    return env.name


def always_seven(env):
    """A policy of actions that there may not be."""
    return Player(lambda here, key: (jnp.full(len(here.obs), 7, jnp.int32), here.carry), lambda rows: ())


def given_play(algorithm, env):
    """``algorithm``, which learns from recorded play alone, with random play in ``env`` whatever it is trained in."""

    @functools.cache
    def play():
        with jax.ensure_compile_time_eval():  # it may be asked for first while a program is traced
            return record(jax.random.key(0), env, random_player(env), 8, 50)

    def loop(config, other, learner):
        return algorithm.loop(config, other, learner, data=play())

    return algorithm._replace(loop=loop, datasets=())
