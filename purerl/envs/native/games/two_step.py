"""The two-step game of QMIX: a safe branch, and one that pays more to agents that agree."""

import jax
import jax.numpy as jnp

from purerl.envs.native.games.game import bits, game
from purerl.types import Env


def two_step(*, safe: float = 7.0, best: float = 8.0) -> Env:
    """Makes TwoStep-v0, of Rashid et al. 2018 (arXiv 1803.11485), section 5: two agents share their reward.

    At the first step action 0 of agent 0 leads to state 1 and action 1 to state 2; agent 1 has no influence, and
    nothing is paid. At the second, state 1 pays ``safe`` whatever is done, and state 2 pays ``[[0, 1], [1, best]]`` for
    the actions of both. The observation ``[3]`` (bool) is the state 0, 1 or 2, one-hot; both agents see it, and it is
    also the state for critics. All bits are False at the end. Independent learners and VDN get 7, QMIX 8.

    Args:
        safe: The reward in state 1.
        best: The reward in state 2 if both choose action 1.
    """

    def dynamics(state, action):
        ones = jnp.sum(action)
        reward = jnp.where(state == 1, safe, jnp.where(ones == 2, best, ones))
        return jnp.where(state == 0, 1 + action[0], 3), jnp.where(state == 0, 0.0, reward), state > 0

    return game(
        "TwoStep-v0",
        num_agents=2,
        num_actions=2,
        initial=lambda level: jnp.zeros((), jnp.int32),
        dynamics=dynamics,
        observe=lambda state: jax.nn.one_hot(jnp.stack([state, state]), 3, dtype=bool),
        observation_space=bits(3),
        time_limit=2,
        state=lambda obs: obs,
    )
