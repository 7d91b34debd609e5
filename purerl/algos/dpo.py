"""Discovered policy optimisation (Lu et al. 2022, arXiv 2210.05639): PPO with another objective."""

from typing import Unpack

from purerl import config as cfg
from purerl.algos import ppo, ppo_presets
from purerl.algos.algorithm import Algorithm, rows_and_state
from purerl.curricula import on_policy
from purerl.formulas import losses
from purerl.formulas.returns import Estimate
from purerl.learners.families.actor_critic import AgentParts, ValueLoss
from purerl.types import Env, Learner


@cfg.config
class DPOConfig(ppo.PPOConfig):
    """Settings of DPO: those of PPO, and two of the drift."""

    drift_a: cfg.Positive = 2.0
    """DPO's alpha: gain (ratio - 1) * advantage above which the drift sets in, for positive advantages."""
    drift_b: cfg.Positive = 0.6
    """DPO's beta: gain log(ratio) * advantage above which the drift sets in, for negative advantages."""


def make_learner(
    config: DPOConfig,
    env: Env,
    *,
    estimate: Estimate | None = None,
    value_loss: ValueLoss = losses.clipped_value_loss,
    **parts: Unpack[AgentParts],
) -> Learner:
    """Makes DPO's `Learner`; the parts are those of `ppo.make_learner`, without the objective."""
    objective = losses.discovered_policy
    return ppo.make_learner(config, env, estimate=estimate, objective=objective, value_loss=value_loss, **parts)


dpo = Algorithm(
    "dpo",
    DPOConfig,
    ppo.problems,
    make_learner,
    on_policy.make_trainer,
    sockets=("value-loss", "optimiser"),
    presets={name: ppo_presets.ALL[name] for name in (*ppo_presets.USUAL, "minatar", "brax")},
    view=rows_and_state,
)
