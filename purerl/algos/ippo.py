"""Independent PPO: every agent is a learner of its own, and by default they share one network.

de Witt et al. 2020, "Is independent learning all you need in the StarCraft multi-agent challenge?", arXiv 2011.09533.
"""

from typing import Unpack

from purerl import config as cfg
from purerl.algos import ppo as parent
from purerl.algos.algorithm import Algorithm
from purerl.algos.ppo_presets import USUAL
from purerl.curricula import on_policy
from purerl.envs import agents
from purerl.formulas import distributions
from purerl.learners.families import actor_critic
from purerl.learners.parts import many_agents
from purerl.networks.given import Fitting, given_or_own
from purerl.types import Env, Learner


@cfg.config
class IPPOConfig(many_agents.AgentSettings, parent.PPOConfig):
    """Settings of independent PPO."""


def view(config: IPPOConfig, env: Env) -> Env:
    """Returns ``env`` with each agent as a row.

    A row sees the agent's own observations and, with ``agent_ids``, which agent it is.
    """
    own = agents.own(env)
    return agents.with_ids(own) if many_agents.needs_ids(config) else own


def make_learner(config: IPPOConfig, env: Env, **parts: Unpack[parent.PPOParts]) -> Learner:
    """Makes independent PPO's `Learner` of the rows of `view`; the parts are those of `ppo.make_learner`."""
    network = actor_critic.make_network(config, env, distributions.for_space(env.action_space))
    own = many_agents.shared_or_own(config, env, network, lambda obs: obs["id"])
    parts["network"] = Fitting(given_or_own(parts.get("network"), own, env.observation_space))
    return parent.make_learner(config, env, **parts)


ippo = Algorithm(
    "ippo",
    IPPOConfig,
    parent.problems,
    make_learner,
    on_policy.make_trainer,
    sockets=parent.ppo.sockets,
    presets=USUAL,
    view=view,
)
