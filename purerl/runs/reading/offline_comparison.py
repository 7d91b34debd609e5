"""The comparison of sweeps by how good a policy they give whoever may play only a few episodes to choose one."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from purerl.errors import ConfigError, own_code
from purerl.formulas import policy_choice
from purerl.names import Trust
from purerl.runs.describing import config_file, sweeps
from purerl.runs.describing.sweeps import env_part
from purerl.runs.reading import choosing, evaluation, loading
from purerl.runs.reading.host_evaluation import Venue
from purerl.store import guards


class ProgramRun(NamedTuple):
    """A run of one program, whose agents are policies to choose among.

    - ``run``: the run.
    - ``alive``: whether each agent is alive, bool ``[P]``: has not diverged.
    - ``sample``: whether its actions are drawn, as in its own evaluations.
    """

    run: loading.Run
    alive: np.ndarray
    sample: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What is told about the run."""
        saved = {name: self.run.saved[name] for name in ("algo", "env", "env_params")}
        return saved | evaluation.manner(self.sample, self.run.simulations)


def compare(
    sources: Sequence[str | Path], *, episodes: int, policies: int, seed: int = 0, trust: Trust = False
) -> dict[str, Any]:
    """Compares sweeps by the return of a policy that is chosen after a few evaluation episodes (`policy_choice`).

    All agents of all configurations of a sweep are policies to choose among; a training of several seeds is a sweep of
    one configuration. Agents that diverged are left out, since that is known without an episode. Each policy plays
    ``episodes`` by which it may be chosen, those of the final evaluation of its training if there are as many, and as
    many others, whose mean is what it returns. They are played once, and drawn from.

    Args:
        sources: Run directories in the same environment.
        episodes: The number of episodes ``E`` of each policy, twice.
        policies: The number of policies that a trial chooses among.
        seed: The seed of the draws.
        trust: As for `loading.load`.

    Returns:
        ``episodes_each``, ``policies`` and ``after``, the numbers of episodes ``[n]``; and ``runs`` with a row for each
        source: what it is, ``agents``, ``diverged``, the ``value`` ``[n]`` with the ends of its interval, ``low`` and
        ``high``, and ``per_policy``, the mean returns of the policies ``[K]``. All can be written as JSON.

    Raises:
        ConfigError: A source cannot be read, names one agent or has none that is alive, or its environment does not
            exist, or is not that of the first one.
    """
    every = [_programs(source, trust) for source in sources]
    first = every[0][0].facts
    for programs, source in zip(every, sources, strict=True):
        for name in ("env", "env_params"):
            here, there = programs[0].facts[name], first[name]
            if here != there:
                raise ConfigError(f"{source}: {name} = {here!r} differs from {there!r} of {sources[0]}")
    rows = []
    for programs, source in zip(every, sources, strict=True):
        returns, others = (
            np.concatenate(parts) for parts in zip(*(_played(x, episodes) for x in programs), strict=True)
        )
        if not (np.isfinite(returns).all() and np.isfinite(others).all()):
            raise ConfigError(f"{source}: has returns that are not finite")
        values = others.mean(axis=1)
        estimate = policy_choice.estimate(returns, values, policies, seed=seed)
        diverged = sum(int((~program.alive).sum()) for program in programs)
        about = {"run": str(source), **programs[0].facts, "agents": len(values), "diverged": diverged}
        numbers = {**estimate._asdict(), "per_policy": values}
        rows.append(about | {name: column.tolist() for name, column in numbers.items()})
    return {"episodes_each": episodes, "policies": policies, "after": list(policy_choice.EPISODES), "runs": rows}


def _programs(source: str | Path, trust: Trust) -> list[ProgramRun]:
    """Reads the runs of one program that a source consists of. Raises `ConfigError` as `compare` does."""
    directory, agent = choosing.parsed(source)
    if agent:
        raise ConfigError(f"{source}: is one agent; there is nothing to choose among")
    programs = []
    for part in sweeps.parts(directory) or [directory]:
        run = loading.load(part, trust=trust, playing=True)
        if swept := env_part(run.setup.swept):
            raise ConfigError(f"{part}: {', '.join(swept)} is swept; all policies must have one environment")
        flags, size = guards.listed(run.summary, "alive_per_seed"), run.setup.members.size
        alive = np.array([flag is not False for flag in flags] if len(flags) == size else [True] * size)
        options = guards.mapping(guards.contents(part, config_file.NAME).get("options"))
        programs.append(ProgramRun(run, alive, options.get("sample") is True))
    if not any(program.alive.any() for program in programs):
        raise ConfigError(f"{directory}: all of its agents have diverged")
    return programs


def _played(program: ProgramRun, episodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Plays twice with the agents that are alive: returns the returns of both ``[K, E]``, the means over all seats."""
    run = program.run
    with own_code(run.saved["algo"]), contextlib.closing(Venue(run.setup.config.num_envs)) as venue:
        plays = evaluation.prepare(run.setup, episodes, evaluation.STEPS, venue=venue, sample=program.sample)

        def returns(salt: int) -> np.ndarray:
            each = np.asarray(plays.episodes(run.policy, salt=salt).episode_return, np.float64)
            return each.reshape(len(each), episodes, -1).mean(axis=-1)[program.alive]

        return returns(evaluation.EVALUATION_SALT), returns(evaluation.ANEW_SALT)
