"""Settings of curricula: which levels an agent is trained in."""

import dataclasses
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from purerl import config as cfg
from purerl import envs
from purerl.curricula.teacher import builder
from purerl.loops.settings import Loop
from purerl.types import Env

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
class CurriculumSettings(Loop):
    """Which levels of the environment an agent learns in."""

    heading: ClassVar[str] = "curriculum"
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
    def scores_by_returns(self) -> bool:
        """Whether scores of levels compare returns with values, so that both must be in the same units."""
        return self.curriculum in REPLAYS and self.level_score == "max-mc"


C = TypeVar("C", bound=CurriculumSettings)


def is_plain(config: CurriculumSettings) -> bool:
    """Tells whether episodes begin in levels as they are drawn, not in chosen ones."""
    return config.curriculum in ("none", "dr")


def kept(config: CurriculumSettings) -> int:
    """Computes the number of levels in the buffer of SFL."""
    return min(config.level_capacity, max(config.level_period * config.num_envs // SMALLER, 1))


def teacher(config: C, env: Env) -> tuple[C, Env] | None:
    """Returns the config of a teacher of levels, and the environment in which it builds them; None where there is none.

    A teacher has the settings of the agent, except for those of images and memories, because it sees all that it has
    built. It learns as often as the agent, from one level of each environment.
    """
    if config.curriculum != "paired" or env.design is None:
        return None
    steps = len(env.design.sizes)
    own: dict[str, Any] = {
        "curriculum": "none",
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


def problems(config: CurriculumSettings, env: Env | None) -> list[str]:
    """Returns the reasons why levels cannot be chosen by ``config`` in ``env`` (None: not known), a line each."""
    if config.curriculum == "none":
        return []
    problems: list[str] = []
    field = f"curriculum = {config.curriculum!r}"
    if config.curriculum in REPLAYS and config.level_capacity < config.num_envs:
        problems.append(f"level_capacity = {config.level_capacity}: must be at least num_envs = {config.num_envs}")
    if config.curriculum == "sfl" and kept(config) < config.num_envs:
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
