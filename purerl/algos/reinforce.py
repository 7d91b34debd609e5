"""REINFORCE with a learned baseline (Williams 1992, section 5; Sutton & Barto 2018, section 13.4)."""

from typing import Unpack

from purerl import config as cfg
from purerl.algos.algorithm import Algorithm
from purerl.formulas import losses, returns
from purerl.learners.families import policy_gradients
from purerl.learners.families.policy_gradients import ActorCriticParts, PolicyGradientState, ValueLoss, problems
from purerl.learners.parts import teaching
from purerl.learners.parts.estimates import Columns, Experience
from purerl.types import Array, Env, Key, Learner, Updated


@cfg.config(num_envs=16, num_steps=128, learning_rate=5e-3, normalize_reward=True)
class ReinforceConfig(policy_gradients.PolicyGradientConfig):
    """Every float may be traced, swept and evolved; the rest shapes the program."""


def make_learner(
    config: ReinforceConfig,
    env: Env,
    *,
    value_loss: ValueLoss = losses.squared_value_loss,
    **parts: Unpack[ActorCriticParts],
) -> Learner:
    """Makes REINFORCE's `Learner`. The parts are arguments of `policy_gradients.make_parts`.

    A return is the sum of all discounted rewards until the episode terminates. Where a time limit or the end of the
    trajectory cuts it, the baseline stands for the rest.
    """
    made = policy_gradients.make_parts(config, env, value_loss=value_loss, **parts)

    def estimate(columns: Columns) -> tuple[Array, Array]:
        total = returns.lambda_returns(columns.reward, columns.next_value, columns.discount, columns.last, 1.0)
        return total - columns.value, total

    def learn(state: PolicyGradientState, experience: Experience, key: Key) -> Updated:
        return policy_gradients.descend(config, made, estimate, state, experience)

    return policy_gradients.make_learner(config, made, learn)


reinforce = Algorithm(
    "reinforce",
    ReinforceConfig,
    problems,
    make_learner,
    teaching.make_trainer,
    sockets=("optimiser",),
)
