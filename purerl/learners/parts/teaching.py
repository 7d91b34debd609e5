"""Training in levels that a curriculum chooses."""

import dataclasses
from typing import Annotated, Any, Literal

from purerl import config as cfg
from purerl import envs, loops
from purerl.curricula import accel, builder, replay, sfl
from purerl.curricula.curriculum import Curriculum
from purerl.envs.fleet import fleet
from purerl.formulas import levels
from purerl.loops import paired, teaching
from purerl.types import Design, Env, Learner, Trainer

SCORES = {"max-mc": levels.max_monte_carlo, "positive-value": levels.positive_value_loss}
OFF = "none"
SMALLER = 10
"""Number of levels that are scored for each that SFL keeps: Rutherford et al. 2024 score 10 to 25."""


REPLAYS = "plr", "robust-plr", "accel"
"""The curricula that replay levels by their scores."""
WITH_BUFFER = cfg.Needs("a curriculum that replays levels", lambda config: config.curriculum in (*REPLAYS, "sfl"))
WITH_SCORES = cfg.Needs("curriculum plr, robust-plr or accel", lambda config: config.curriculum in REPLAYS)
WITH_EDITS = cfg.Needs("curriculum accel", lambda config: config.curriculum == "accel")
WITH_REFRESH = cfg.Needs("curriculum sfl", lambda config: config.curriculum == "sfl")
WITH_TEACHER = cfg.Needs("curriculum paired", lambda config: config.curriculum == "paired")


TWICE = "accel", "sfl", "paired"
"""The curricula whose iterations take two rollouts."""


@cfg.config
class TeachingSettings:
    """Which levels of the environment an agent learns in."""

    curriculum: Literal["none", "dr", "plr", "robust-plr", "accel", "sfl", "paired"] = "none"
    """How levels are chosen. none: the environment draws them. dr: a new random level for each episode. plr: levels
    with high scores are replayed. robust-plr: as plr, learning from replayed levels only. accel: as robust-plr, with
    edited copies of replayed levels. sfl: levels that are solved sometimes, but not always. paired: a teacher builds
    levels. All but dr restart the environments at each iteration, in levels that last for num_steps."""
    level_share: Annotated[cfg.Fraction, WITH_BUFFER] = 0.5
    """Probability that an iteration replays levels of the buffer; for sfl, the fraction of environments that do."""
    level_capacity: Annotated[cfg.Count, WITH_BUFFER] = 4000
    """Number of levels in the buffer. For sfl at most a tenth of the levels that it scores."""
    level_score: Annotated[Literal["max-mc", "positive-value"], WITH_SCORES] = "max-mc"
    """Score of a level. max-mc: the largest return in the level minus the critic's values. positive-value: the mean
    positive advantage."""
    level_temperature: Annotated[cfg.Positive, WITH_SCORES] = 0.3
    """Temperature of replay: the level with rank r of scores is replayed in proportion to r ** (-1 /
    level_temperature)."""
    level_staleness: Annotated[cfg.Fraction, WITH_SCORES] = 0.3
    """Share of the replay probability that depends on how long ago a level was played instead of its score."""
    level_edits: Annotated[cfg.Count, WITH_EDITS] = 5
    """Number of edits that turn a replayed level into a new one."""
    level_period: Annotated[cfg.Count, WITH_REFRESH] = 100
    """Iterations between two updates of the buffer, which then holds the most learnable of the num_envs levels scored
    in each of these iterations."""
    teacher_entropy_coef: Annotated[cfg.NonNegative, WITH_TEACHER] = 0.05
    """Weight of the teacher's entropy bonus, if the algorithm has an entropy bonus."""

    @property
    def iteration_frames(self) -> int:
        """Number of environment steps of one iteration, including those of scored levels and of another agent."""
        given: Any = super()
        return int(given.iteration_frames) * (2 if self.curriculum in TWICE else 1)


def make_trainer(config: Any, env: Env, learner: Learner, teacher: Learner | None = None) -> Trainer:
    """Makes one iteration as a `Trainer`: that of a curriculum, or without one that of `loops.on_policy`.

    Args:
        config: Settings of the algorithm.
        env: Environment to learn in.
        learner: The learner of the agent.
        teacher: The learner of a teacher of levels, in the environment that `teacher` returns; None: there is none.

    Raises:
        ConfigError: As `fleet` does.
    """
    rows = fleet(env, config.num_envs)
    if teacher is not None and env.design is not None:
        return paired.paired(rows, env, learner, teacher, env.design, num_steps=config.num_steps)
    if env.design is None or is_plain(config):
        return loops.on_policy(rows, learner, num_steps=config.num_steps)
    curriculum = make_curriculum(config, env, env.design)
    return teaching.taught(rows, env, learner, curriculum, num_steps=config.num_steps)


def is_plain(config: Any) -> bool:
    """Tells whether episodes begin in levels as they are drawn, not in chosen ones."""
    return getattr(config, "curriculum", OFF) in (OFF, "dr")


def make_curriculum(config: Any, env: Env, design: Design) -> Curriculum:
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


def kept(config: Any) -> int:
    """Computes the number of levels in the buffer of SFL."""
    return min(config.level_capacity, max(config.level_period * config.num_envs // SMALLER, 1))


def teacher(config: Any, env: Env) -> tuple[Any, Env] | None:
    """Returns the config of a teacher of levels, and the environment in which it builds them; None where there is none.

    A teacher has the settings of the agent, except for those of images and memories, because it sees all that it has
    built. It learns as often as the agent, from one level of each environment.
    """
    if getattr(config, "curriculum", OFF) != "paired" or env.design is None:
        return None
    steps = len(env.design.sizes)
    own = {
        "curriculum": OFF,
        "num_steps": steps,
        "total_steps": config.num_iterations * config.num_envs * steps,
        "entropy_coef": config.teacher_entropy_coef,
        "memory": "none",
        "torso": "plain",
        "convolutions": (),
        "lag": 0.0,
        "max_lag": 0,
    }
    names = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{k: v for k, v in own.items() if k in names}), builder(env.design)


def problems(config: Any, env: Env | None) -> list[str]:
    """Returns the reasons why levels cannot be chosen by ``config`` in ``env`` (None: not known), a line each."""
    field, problems = f"curriculum = {config.curriculum!r}", []
    by_returns = config.curriculum in REPLAYS and config.level_score == "max-mc"
    if by_returns and getattr(config, "normalize_reward", False):
        problems.append(
            f"{field}: level_score = 'max-mc' compares returns with values, which normalize_reward = True scales; give "
            "level_score = 'positive-value' or normalize_reward = False"
        )
    if by_returns and getattr(config, "intrinsic", OFF) != OFF:
        problems.append(
            f"{field}: level_score = 'max-mc' compares returns with values, which have the bonus of intrinsic = "
            f"{config.intrinsic!r}; give level_score = 'positive-value' or intrinsic = 'none'"
        )
    sound = cfg.sound(config, "level_capacity", "level_period", "num_envs")
    if sound and config.curriculum in REPLAYS and config.level_capacity < config.num_envs:
        problems.append(f"level_capacity = {config.level_capacity}: must be at least num_envs = {config.num_envs}")
    if sound and config.curriculum == "sfl" and kept(config) < config.num_envs:
        problems.append(
            f"{field}: keeps {kept(config)} levels, a tenth of level_period * num_envs, at most level_capacity; must "
            f"be at least num_envs = {config.num_envs}"
        )
    if env is None or problems:
        return problems
    if env.design is None:
        return [f"{field}: {env.name} has no levels to choose from; {envs.with_levels(env)}"]
    if env.num_agents > 1 and config.curriculum == "paired":
        return [f"{field}: is for one agent; {env.name} has {env.num_agents}"]
    if env.resets != "every" and not is_plain(config):
        return [f"{field}: begins episodes in its own levels; resets = {env.resets!r} must be left out"]
    return []
