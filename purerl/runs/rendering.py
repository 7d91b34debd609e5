"""``purerl render``: an agent of a run plays, and what happens is drawn."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl.display import drawings, films
from purerl.display.drawings import Moment
from purerl.display.films import Picture
from purerl.loops.evaluation import Table, player, playing
from purerl.runs import evaluation
from purerl.runs.directory import FILMS, check_out
from purerl.runs.evaluation import Agent
from purerl.runs.options import RenderOptions
from purerl.types import Array, PyTree, Step

SALT = 2**31 + 3
"""Folded into a seed's key before it is filmed, so that the episodes are none that were trained or evaluated on."""
STEPS = 64
"""Steps that are played at once."""
HOLD = 0.8
"""Seconds that the last picture of an episode stays."""


class Played(NamedTuple):
    """A step: what was before it, the rewards of all agents ``[N]``, and whether the episode ended, either way."""

    moment: Moment
    reward: np.ndarray
    terminated: bool
    truncated: bool


def render(options: RenderOptions) -> tuple[Path, int, list[float]]:
    """Writes the film that ``options`` ask for; returns its path, the number of its pictures, and the return of each
    episode (of several agents, their mean). Raises `ConfigError` before anything is played."""
    path = Path(options.out) if options.out else Path(options.run) / FILMS[0]
    check_out(path, overwrite=options.overwrite, given=bool(options.out))
    films.check(path)
    agent = evaluation.agent(options.run, options.agent, trust=options.trust)
    drawing = drawings.drawing(agent.saved["env"], agent.env_params, agent.env.observation_space)
    fps = options.fps or drawing.fps
    returns: list[float] = []

    def pictures() -> Iterator[Picture]:
        for number, episode in enumerate(episodes(agent, options)):
            total = 0.0
            for time, step in enumerate(episode):
                total += float(np.mean(step.reward))
                how = " terminated" if step.terminated else " cut off" if step.truncated else ""
                told = f"reward {np.mean(step.reward):.4g}, return {total:.5g}{how}"
                shown = [step.moment]
                if step.terminated and drawing.end:
                    shown.append(step.moment._replace(state=drawing.end(step.moment)))
                stays = [1] * len(shown)
                stays[-1] += round(HOLD * fps) if how else 0
                for moment, frames in zip(shown, stays, strict=True):
                    caption = f"episode {number}, step {time}, {told}"
                    yield Picture(drawing.frame(moment, options.size), caption, frames)
            returns.append(total)

    return path, films.write(path, pictures(), fps), returns


def episodes(agent: Agent, options: RenderOptions) -> Iterator[Iterator[Played]]:
    """The steps of each episode that an agent plays, in its own environment."""
    env, whole = agent.env, player(agent.learner, agent.policy)

    def begin(key: Array) -> Table:
        return playing(key, env, whole, 1)[0]()

    def play(key: Array, table: Table, first: Array) -> tuple[Table, tuple[PyTree, PyTree, Array, Step]]:
        _, move = playing(key, env, whole, 1)

        def one(table: Table, time: Array):
            after, action, step = move(table, time)
            return after, (table.env_state, table.obs, action, step._replace(obs=(), next_obs=()))

        return jax.lax.scan(one, table, first + jnp.arange(STEPS))

    start, go_on = jax.jit(begin), jax.jit(play)
    key = jax.random.fold_in(jax.random.key(options.seed), SALT)
    for number in range(options.episodes):
        yield _episode(jax.random.fold_in(key, number), start, go_on, options.max_steps, env.num_agents)


def _episode(key: Array, start: Any, go_on: Any, max_steps: int, num_agents: int) -> Iterator[Played]:
    table = start(key)
    for first in itertools.count(0, STEPS):
        table, rows = go_on(key, table, first)
        env_state, obs, action, step = jax.device_get(rows)
        for i in range(min(STEPS, max_steps - first)):
            state = drawings.innermost(jax.tree.map(lambda x, i=i: x[i, 0], env_state))
            row = i if num_agents > 1 else (i, 0)
            seen, done = (jax.tree.map(lambda x, row=row: x[row], each) for each in (obs, action))
            ended, cut = bool(step.terminated[i].all()), bool(step.truncated[i].all())
            over = ended or cut or first + i + 1 == max_steps
            yield Played(Moment(state, seen, done), step.reward[i], ended, over and not ended)
            if over:
                return
