"""Environments so small that their values are known in closed form. An algorithm that fails on one has a bug.

Each isolates one ability; the names are those after ``probe/``. Andy Jones, "Debugging RL, Without the Agonizing Pain",
has the idea. ``V`` is the value, ``gamma`` the discount.
"""

import jax
import jax.numpy as jnp

from purerl.envs.episodic import box, episodic
from purerl.spaces import Box, Discrete, MultiDiscrete
from purerl.types import Env

TWO_ACTIONS = Discrete(2)


def constant_reward(*, reward: float = 1.0, max_steps: int = 10) -> Env:
    """Makes a probe with ``reward`` at each step, truncated after ``max_steps``: V = reward / (1 - gamma).

    A truncation does not end the value.
    """
    return _probe("constant-reward", _nothing, lambda obs, action: (obs, reward, False), 1.0, 1.0, max_steps=max_steps)


def one_step() -> Env:
    """Makes a probe of one step with reward 1: V = 1."""
    return _probe("one-step", _nothing, lambda obs, action: (obs, 1.0, True), 1.0, 1.0)


def obs_dependent_reward() -> Env:
    """Makes a probe of one step whose observation is -1 or 1, and so is the reward: V(obs) = obs."""
    return _probe("obs-dependent-reward", _sign, lambda obs, action: (obs, obs[0], True), -1.0, 1.0)


def discount_two_steps() -> Env:
    """Makes a probe of two steps, observed as 0 and 1, with reward 1 after the second: V(0) = gamma, V(1) = 1."""

    def dynamics(obs, action):
        return jnp.ones_like(obs), obs[0], obs[0] > 0

    return _probe("discount-two-steps", lambda key, shape: jnp.zeros((*shape, 1)), dynamics, 0.0, 1.0, max_steps=2)


def action_dependent_reward() -> Env:
    """Makes a probe of one step with reward 1 for action 1, else -1: Q(action) = 2 action - 1.

    The best policy has V = 1.
    """

    def dynamics(obs, action):
        return obs, jnp.where(action > 0, 1.0, -1.0), True

    return _probe("action-dependent-reward", _nothing, dynamics, 1.0, 1.0)


def obs_action_match() -> Env:
    """Makes a probe of one step with reward 1 for action 1 at observation 1 and for action 0 at -1, else -1.

    The best policy has V = 1; every policy that ignores the observation has V = 0 on average.
    """

    def dynamics(obs, action):
        return obs, jnp.where((action > 0) == (obs[0] > 0), 1.0, -1.0), True

    return _probe("obs-action-match", _sign, dynamics, -1.0, 1.0)


def target_action() -> Env:
    """Makes a probe of one step with reward ``-(action - 0.5)**2`` for an action ``[1]`` in [-1, 1], clipped into it.

    The best action is 0.5, with V = 0; actions drawn uniformly have V = -7/12.
    """

    def dynamics(obs, action):
        return obs, -((jnp.clip(action[0], -1.0, 1.0) - 0.5) ** 2), True

    return _probe("target-action", _nothing, dynamics, 1.0, 1.0, action_space=Box(-1.0, 1.0, (1,), jnp.float32))


def dict_obs() -> Env:
    """Makes a probe of one step, observed as a dict, whose reward depends on both of its leaves.

    ``pos`` ``[2]`` has -1 or 1 as its first number, and ``img`` ``[5, 5, 1]``, bool, is all False or all True. Reward 1
    for action 1 at 1 and for action 0 at -1, else -1; 0.5 more if the image is lit, 0.5 less if it is dark. The best
    policy has V = 1.5 lit, 0.5 dark.
    """

    def dynamics(physical, action):
        sign, lit = physical
        return physical, jnp.where((action > 0) == (sign > 0), 1.0, -1.0) + 0.5 * lit, True

    def observe(physical):
        sign, lit = physical
        return {"pos": jnp.stack([sign, jnp.zeros_like(sign)]), "img": jnp.full((5, 5, 1), lit > 0)}

    return episodic(
        "probe/dict-obs",
        levels=lambda key, shape: jax.random.rademacher(key, (*shape, 2), dtype=jnp.float32),
        initial=lambda level: (level[0], level[1]),
        dynamics=dynamics,
        observe=observe,
        time_limit=1,
        observation_space={"pos": box((-1.0, 0.0), (1.0, 0.0)), "img": Box(False, True, (5, 5, 1), jnp.dtype(bool))},
        action_space=Discrete(2),
    )


def multi_discrete() -> Env:
    """Makes a probe of one step with two actions, of two and of three.

    Reward 1 if the first matches the observation, -1 or 1, and 1 more if the second is 2. The best policy has V = 2.
    """

    def dynamics(obs, action):
        matches, right = (action[0] > 0) == (obs[0] > 0), action[1] == 2
        return obs, matches.astype(jnp.float32) + right.astype(jnp.float32), True

    return _probe("multi-discrete", _sign, dynamics, -1.0, 1.0, action_space=MultiDiscrete((2, 3)))


def hybrid() -> Env:
    """Makes a probe of one step with a side, 0 or 1, and how far to go there, a number in [0, 4].

    Reward 1 if the side matches the observation, -1 or 1, less ``(far - target)**2`` with a target of 1 or 3. ``far``
    is clipped into its bounds. The best policy has V = 1.
    """

    def dynamics(obs, action):
        matches = (action["side"] > 0) == (obs[0] > 0)
        return obs, matches - (jnp.clip(action["far"], 0.0, 4.0) - (2.0 + obs[0])) ** 2, True

    actions = {"side": Discrete(2), "far": Box(0.0, 4.0, (), jnp.float32)}
    return _probe("hybrid", _sign, dynamics, -1.0, 1.0, action_space=actions)


def illegal_actions() -> Env:
    """Makes a probe of two steps, observed with their number and which two of three actions are legal.

    Reward 1 for the action after the illegal one, 0 for the other, and 100 for the illegal one, which must never be
    taken: V = 1 + gamma, then 1.
    """

    def dynamics(physical, action):
        time, forbidden = physical
        reward = jnp.where(action == forbidden, 100.0, jnp.where(action == (forbidden + 1) % 3, 1.0, 0.0))
        return (time + 1.0, (forbidden + 1.0) % 3), reward, time > 0

    def observe(physical):
        time, forbidden = physical
        return {"time": jnp.minimum(time, 1.0)[None], "legal": jnp.arange(3) != forbidden}

    return episodic(
        "probe/illegal-actions",
        levels=lambda key, shape: jax.random.randint(key, shape, 0, 3),
        initial=lambda level: (jnp.zeros(()), level.astype(jnp.float32)),
        dynamics=dynamics,
        observe=observe,
        time_limit=2,
        observation_space={"time": box((0.0,), (1.0,)), "legal": Box(False, True, (3,), jnp.dtype(bool))},
        action_space=Discrete(3),
        legal=lambda obs: obs["legal"],
    )


def _probe(name, first_obs, dynamics, low, high, *, max_steps=1, action_space=TWO_ACTIONS) -> Env:
    """Makes a probe whose physical state is the observation ``[1]``, and whose level is an episode's first one."""
    return episodic(
        f"probe/{name}",
        levels=first_obs,
        initial=lambda level: level,
        dynamics=dynamics,
        observe=lambda physical: physical,
        time_limit=max_steps,
        observation_space=box((low,), (high,)),
        action_space=action_space,
    )


def _nothing(key, shape):
    return jnp.ones((*shape, 1))


def _sign(key, shape):
    return jax.random.rademacher(key, (*shape, 1), dtype=jnp.float32)
