"""Self-play with a reference policy: every player pays the others for moving away from it.

The newest policy against itself goes round in circles where an equilibrium mixes actions. With a price on the distance
to a reference policy it converges. If the reference is then replaced by the result, again and again, the results
approach an equilibrium of the game itself: regularised Nash dynamics (R-NaD; Perolat et al. 2021, arXiv 2002.08456,
section 3; Perolat et al. 2022, arXiv 2206.15378). Here the reference is replaced after a number of iterations, and any
policy gradient takes the place of their dynamics.

Rows are those of `envs.fleet`: environment ``i``, agent ``j`` is row ``i * N + j``.
"""

from typing import Annotated, Any, NamedTuple

import jax.numpy as jnp

from purerl import config as cfg
from purerl.learners.parts import settings, target_networks
from purerl.learners.wrappers.wrapper import Wrapper, inside
from purerl.types import Array, Env, Key, Learner, PyTree, Scalar, Transition, Updated

WITH_REFERENCE = cfg.Needs("a reference_period", lambda config: config.reference_period > 0)


@cfg.config
class ReferenceSettings:
    """A reference policy, from which it costs to move away, in environments of several agents."""

    reference_period: cfg.NonNegativeCount = 0
    """Iterations between two updates of the reference policy of self-play to the newest policy (R-NaD). 0: no reference
    policy."""
    regularisation: Annotated[cfg.NonNegative, WITH_REFERENCE] = 0.2
    """Coefficient (eta) of the reward transfer from a player to the others at each decision: the log ratio of the
    probabilities of its action under the newest and the reference policy."""


class ReferenceState(NamedTuple):
    """The state of a learner with a reference policy.

    ``reference`` is a behaviour of the learner; ``age`` counts the iterations since it was replaced.
    """

    learner: PyTree
    reference: PyTree
    age: Array


def problems(config: ReferenceSettings, env: Env | None) -> list[str]:
    """Returns the reasons why there can be no reference policy, a line each."""
    if env is None or env.num_agents > 1:
        return []
    return [f"reference_period = {config.reference_period}: {env.name} has one agent"]


def transformed(reward: Array, log_ratio: Array, eta: Scalar, num_agents: int) -> Array:
    """Subtracts from each agent's rewards a payment for its own decisions, and divides it among the others.

    A decision costs ``eta * log_ratio``. The other agents of the environment receive equal parts of it, so that the sum
    over agents stays. For two players this is the transform of Perolat et al. 2021 (arXiv 2002.08456, section 3):
    ``reward - eta * log_ratio + eta *`` the opponent's.

    Args:
        reward: Rewards ``[..., B]``.
        log_ratio: ``log(pi / pi_reference)`` of the action ``[..., B]``, 0 where it was ignored.
        eta: Price of a decision.
        num_agents: Agents of an environment.
    """
    paid = eta * log_ratio.reshape(*log_ratio.shape[:-1], -1, num_agents)
    received = (jnp.sum(paid, axis=-1, keepdims=True) - paid) / (num_agents - 1)
    return reward + (received - paid).reshape(reward.shape)


def regularised(config: ReferenceSettings, num_agents: int, learner: Learner) -> Learner:
    """Returns ``learner`` with `transformed` rewards, and with a `ReferenceState` around its own.

    The first reference is the learner's initial policy.
    """
    log_ratio: Any = learner.log_ratio

    def init(key: Key, obs: PyTree) -> ReferenceState:
        learned = learner.init(key, obs)
        return ReferenceState(learned, learner.behaviour(learned), jnp.zeros((), jnp.int32))

    def update(state: ReferenceState, trajectory: Transition, key: Key) -> Updated:
        ratio = log_ratio(trajectory, state.reference)
        reward = transformed(trajectory.reward, ratio, config.regularisation, num_agents)
        learned, metrics, scores = learner.update(state.learner, trajectory._replace(reward=reward), key)
        newest = learner.behaviour(learned)
        reference, age = target_networks.periodic(newest, state.reference, state.age, config.reference_period)
        return Updated(
            ReferenceState(learned, reference, age), {**metrics, "reference_divergence": jnp.mean(ratio)}, scores
        )

    return inside(learner, init=init, update=update)


reference = Wrapper(
    "reference policy",
    ReferenceSettings,
    "reference_period",
    0,
    wrap=lambda config, env, learner: regularised(config, env.num_agents, learner),
    problems=problems,
    needs=(settings.ON_POLICY, settings.LOG_RATIOS, settings.EVERY_DECISION),
)
