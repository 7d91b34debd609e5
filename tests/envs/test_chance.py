"""What states hold of the future, and marks for what agents may not know: every wrapper and every view keeps them."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from purerl import envs
from purerl.envs import agents, seats, spaces_only
from purerl.envs.adapters.stepping import Consequence, episodes
from purerl.envs.union import union
from purerl.envs.wrappers import TRANSFORMS, led, messages, randomise
from purerl.envs.wrappers.talk import Channel, Goal
from purerl.spaces import Box, Discrete

GOAL = Goal(1, 1, lambda key, shape: jnp.zeros((*shape, 1)), lambda obs: obs)


class Dealt(NamedTuple):
    """A place, and the deck of cards that are still to come."""

    place: Any
    deck: Any


def dealing(num_agents=1):
    """An environment whose deck becomes -1 where it is drawn anew."""
    seat = lambda x: x if num_agents == 1 else jnp.broadcast_to(x, (num_agents, *x.shape))
    env = envs.episodic(
        "dealing",
        levels=lambda key, shape: jnp.zeros((*shape, 1)),
        initial=lambda level: Dealt(level, jnp.arange(3)),
        dynamics=lambda now, action: (now, 0.0, seat(jnp.array(False))),
        observe=lambda now: seat(now.place),
        time_limit=3,
        observation_space=Box(0.0, 1.0, (1,), jnp.float32),
        action_space=Discrete(2),
        num_agents=num_agents,
    )

    def redraw(key, state):
        return state._replace(physical=state.physical._replace(deck=jnp.full(3, -1)))

    return env._replace(hidden=True, redraw=redraw)


VALUES = {"resets": "every", "sticky_actions": 0.5, "reward_scale": 2.0, "observation_mask": "0"}
CHANGED = {
    **{
        name: functools.partial(lambda wrap, value: wrap(dealing(), value), TRANSFORMS[name], VALUES.get(name, 1))
        for name in TRANSFORMS
    },
    "observation_mask": lambda: TRANSFORMS["observation_mask"](TRANSFORMS["show_last"](dealing(), 1), "0"),
    "randomise": lambda: randomise("dealing", lambda **_: dealing(), {"x": (0, 1)}),
    "led": lambda: led(dealing(), Channel(1, 1, 1.0), lambda obs, goal: goal, GOAL),
    "messages": lambda: messages(dealing(), Channel(1, 1, 1.0), lambda obs: obs),
    "union": lambda: union([dealing(), dealing()])(1),
    "seats": lambda: seats.seated(dealing(2)),
    "own": lambda: agents.own(dealing(2)._replace(own=lambda obs: obs)),
    "ids": lambda: agents.with_ids(dealing(2)),
    "state": lambda: agents.with_state(dealing(2)),
    "joint": lambda: agents.joint(dealing(2)),
    "only": lambda: agents.only(dealing(), lambda obs: obs)[0],
}


@pytest.mark.parametrize("name", CHANGED)
def test_wrappers_and_views_keep_it(name):
    """Traced alone: the new deck must come from ``redraw``, which is a program without the old one."""
    env = CHANGED[name]()
    assert env.hidden
    state = jax.eval_shape(env.reset, jax.random.key(0))[0]
    traced, shapes = jax.make_jaxpr(lambda key, state: env.redraw(key, state), return_shape=True)(
        jax.random.key(1), state
    )
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    passed = {id(x) for x in traced.jaxpr.invars}
    decks = ["deck" in jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(state)]
    assert any(decks)
    assert [id(x) not in passed for x in traced.jaxpr.outvars] == decks


def test_what_a_policy_may_not_see_is_hidden():
    """By `Env.own`, and by a speaker's part; without them nothing is."""
    plain = dealing()._replace(hidden=False)
    two = {"a": Box(0.0, 1.0, (1,), jnp.float32), "b": Box(0.0, 1.0, (1,), jnp.float32)}
    parted = plain._replace(observation_space=two, own=lambda obs: obs["a"])
    assert agents.own(parted).hidden and agents.joint(parted).hidden and not agents.own(plain).hidden
    hide = lambda unseen: messages(TRANSFORMS["show_last"](plain, 1), Channel(4, 1, 1.0, unseen), lambda obs: obs[:1])
    assert hide((1,)).hidden and not hide(()).hidden
    partly = plain._replace(partly_observed=True)
    assert agents.joint(partly).partly_observed and union([plain, partly])(0).partly_observed


def test_a_policy_knows_without_its_environment_that_something_was_hidden():
    for env in (dealing(), dealing()._replace(hidden=False)):
        assert spaces_only.stand_in("dealing", spaces_only.described(env), "gone").hidden == env.hidden


def test_adapters_redraw_keys_by_the_names_that_libraries_give_them():
    """And no words that are none, such as the hashes of positions by which games know repetitions."""

    def reset(key):
        words = jax.random.key_data(key)
        return {"key": words, "info": {"rng": words, "hash": words}, "typed": key}, jnp.zeros(1)

    step = lambda state, action, _: Consequence(state, jnp.zeros(1), 0.0, False, False)
    space = Box(0.0, 1.0, (1,), jnp.float32)
    env = episodes("library", reset, step, space, Discrete(2), max_steps=3)
    before = env.reset(jax.random.key(1))[0]
    after = env.redraw(jax.random.key(2), before)
    data = lambda tree: jax.tree.map(lambda x: x if x.dtype == jnp.uint32 else jax.random.key_data(x), tree)
    same = jax.tree.map(lambda x, y: bool(jnp.all(x == y)), data(before.inner), data(after.inner))
    assert same == {"key": False, "info": {"rng": False, "hash": True}, "typed": False}
    assert not jnp.all(after.inner["key"] == after.inner["info"]["rng"])
