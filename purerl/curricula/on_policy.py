"""Training on policy, with a curriculum of levels if a config asks for one."""

from typing import Any

from purerl.curricula.curriculum import Curriculum, accel, replay, sfl
from purerl.curricula.paired import paired_trainer
from purerl.curricula.settings import CurriculumSettings, is_plain, kept
from purerl.curricula.training import curriculum_trainer
from purerl.envs.fleet import fleet
from purerl.formulas import levels
from purerl.loops import on_policy
from purerl.types import Design, Env, Learner, Trainer

SCORES = {"max-mc": levels.max_monte_carlo, "positive-value": levels.positive_value_loss}


def make_trainer(config: CurriculumSettings, env: Env, learner: Learner, teacher: Learner | None = None) -> Trainer:
    """Makes one iteration on policy as a `Trainer`, in the levels of the curriculum that ``config`` asks for.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        learner: The learner of the agent.
        teacher: The learner of a teacher of levels, in the environment that `settings.teacher` returns; None: there is
            none.

    Raises:
        ConfigError: As `fleet` does.
    """
    rows = fleet(env, config.num_envs)
    if teacher is not None and env.design is not None:
        return paired_trainer(rows, env, learner, teacher, env.design, num_steps=config.num_steps)
    if env.design is None or is_plain(config):
        return on_policy(rows, learner, num_steps=config.num_steps)
    curriculum = make_curriculum(config, env, env.design)
    return curriculum_trainer(rows, env, learner, curriculum, num_steps=config.num_steps)


def make_curriculum(config: CurriculumSettings, env: Env, design: Design) -> Curriculum:
    """Makes the curriculum of ``config``, which keeps a buffer of levels."""
    if config.curriculum == "sfl":
        return sfl(
            env,
            config.num_envs,
            capacity=kept(config),
            share=config.level_share,
            refresh=config.level_period,
            limit=design.solved,
        )
    settings: dict[str, Any] = {
        "capacity": config.level_capacity,
        "share": config.level_share,
        "staleness": config.level_staleness,
        "temperature": config.level_temperature,
        "score": SCORES[config.level_score],
    }
    if config.curriculum == "accel":
        return accel(env, design, config.num_envs, edits=config.level_edits, **settings)
    return replay(env, config.num_envs, robust=config.curriculum == "robust-plr", **settings)
