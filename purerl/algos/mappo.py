"""Multi-agent PPO: actors that see their own observations, and a critic that sees the whole environment.

Yu et al. 2022, "The surprising effectiveness of PPO in cooperative multi-agent games", arXiv 2103.01955.
"""

from typing import Unpack

from purerl.algos import ppo as parent
from purerl.algos.ippo import IPPOConfig, ippo
from purerl.envs import agents
from purerl.formulas import distributions
from purerl.learners.families import actor_critic
from purerl.learners.parts import many_agents, settings
from purerl.networks import ActorCritic
from purerl.networks.given import Fitting, given_or_own
from purerl.networks.torsos import OnPart
from purerl.types import Distribution, Env, Learner


def view(config: IPPOConfig, env: Env) -> Env:
    """Returns ``env`` with each agent as a row of observations ``{"own", "state"}``.

    The actor sees ``own``; the critic sees ``state`` as well.
    """
    return agents.with_state(agents.with_ids(env) if many_agents.needs_ids(config) else env)


def make_network(config: IPPOConfig, env: Env, distribution: Distribution) -> ActorCritic:
    """Makes separate networks of the actor and the critic, each with a memory if ``config`` has one."""
    select = env.own or (lambda obs: obs)
    own = env._replace(observation_space=select(env.observation_space))
    return actor_critic.separate_networks(
        config,
        distribution,
        lambda sizes: OnPart(select, settings.make_torso(config, own, sizes)),
        lambda sizes: settings.make_torso(config, env, sizes),
    )


def make_learner(config: IPPOConfig, env: Env, **parts: Unpack[parent.PPOParts]) -> Learner:
    """Makes multi-agent PPO's `Learner` of the rows of `view`; the parts are those of `ppo.make_learner`."""
    network = make_network(config, env, distributions.for_space(env.action_space))
    own = many_agents.shared_or_own(config, env, network, lambda obs: obs["own"]["id"])
    parts["network"] = Fitting(given_or_own(parts.get("network"), own, env.observation_space))
    return parent.make_learner(config, env, **parts)


def problems(config: IPPOConfig, env: Env | None) -> list[str]:
    """Returns the reasons why ``config`` cannot train on ``env`` (None: not known), a line each."""
    lines = ["shared_torso = True: must be False; the actor does not see what the critic sees"]
    return parent.problems(config, env) + (lines if config.shared_torso else [])


mappo = ippo._replace(name="mappo", own_problems=problems, own_learner=make_learner, view=view)
