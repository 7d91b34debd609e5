"""Episodes of a policy: recorded as a dataset, and drawn as a film."""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import backend, spaces, trees
from purerl.display import drawings, films, words
from purerl.display.drawings import Drawing, Moment, boards, searches
from purerl.display.drawings.sheet import captioned
from purerl.display.films import Picture
from purerl.envs import agents
from purerl.errors import ConfigError, printable
from purerl.hosts import local
from purerl.hosts.bundle import Turn
from purerl.loops.evaluation import Player, player, playing, random_player, watched
from purerl.loops.recording import record
from purerl.names import called, here, imported
from purerl.replay.fixed import dataset_problems, joined
from purerl.runs.describing.environments import checked
from purerl.runs.describing.reading_options import RecordOptions, RenderOptions
from purerl.runs.describing.run_directory import FILMS, check_out
from purerl.runs.reading import choosing, contents, evaluation, filmed, host_evaluation, loading, shares
from purerl.runs.reading.evaluation import RANDOM
from purerl.runs.reading.filmed import Episode
from purerl.runs.reading.host_evaluation import Playing
from purerl.runs.reading.loading import Agent
from purerl.runs.reading.shares import Part
from purerl.store import trusted_modules
from purerl.types import Array, Dataset, Env, PyTree, Situation

RECORDING_SALT, RENDERING_SALT = 2**31 + 2, 2**31 + 3
"""Folded into the key of the seed of a recording and of a film, whose episodes none trained in or was evaluated in."""
COPIES = 8
"""The largest number of copies of a host environment that play for a policy that is not of a run."""


class Cast(NamedTuple):
    """An environment and a player in it.

    - ``name``, ``env_params``: the name and the parameters of the environment.
    - ``env``: the environment as the policy sees it.
    - ``player``: the player.
    - ``policy``: the entry for the player in the card of the dataset.
    - ``copies``: the usual number of copies of a host environment that play.
    """

    name: str
    env_params: dict[str, Any]
    env: Env
    player: Player
    policy: dict[str, Any]
    copies: int = COPIES


def record_run(options: RecordOptions, env_params: dict[str, Any]) -> dict[str, Any]:
    """Records the dataset that ``options`` ask for, writes it, and returns its card.

    Several players play one after another, each with a key of its own; one alone plays with the key of the seed.
    ``env_params`` are the parameters of the environment; of a run, those in place of its own.

    Raises:
        ConfigError: The options are not possible, before anything is played; or a player's actions are not in the
            environment's action space.
    """
    path = here(options.out)
    check_out(path, overwrite=options.overwrite)
    parts = shares.parts(options.who, options.episodes)
    casts = _casts(options, parts, env_params)
    key, stage = jax.random.fold_in(jax.random.key(options.seed), RECORDING_SALT), casts[0]
    keys = [key] if len(parts) == 1 else [jax.random.fold_in(key, number) for number in range(len(parts))]
    played = []
    for part, cast, own_key in zip(parts, casts, keys, strict=True):
        given = own_key, cast.env, cast.player, part.episodes, options.max_steps
        copies = options.eval_envs or cast.copies
        data = host_evaluation.record(*given, copies) if cast.env.host else record(*given)
        if wrong := dataset_problems(data, stage.env.observation_space, stage.env.action_space):
            raise ConfigError("\n".join(f"{part.name}: {line}" for line in wrong))
        played.append(data)
    about = {"seed": options.seed, "max_steps": options.max_steps}
    policy = casts[0].policy if len(casts) == 1 else {"players": _shared(parts, casts, played)}
    return contents.save(path, joined(played), stage.env.action_space, stage.name, stage.env_params, policy, about)


def _shared(parts: Sequence[Part], casts: Sequence[Cast], played: Sequence[Dataset]) -> list[dict[str, Any]]:
    """Returns the entries of several players in a card, in the order of their episodes in the file."""
    return [
        {**cast.policy, "share": float(part.share), "episodes": int(data.last.sum()), "steps": len(data.reward)}
        for part, cast, data in zip(parts, casts, played, strict=True)
    ]


def _casts(options: RecordOptions, parts: Sequence[Part], env_params: dict[str, Any]) -> list[Cast]:
    """Makes the players, all in one environment: that of the runs among them, or else the one that is named."""
    names = [part.name for part in parts]
    runs = {name: _of_run(name, options, env_params) for name in names if _is_run(name)}
    stage = next(iter(runs.values()), None) or _named(names[0], options, env_params)
    form = lambda env: spaces.struct((env.observation_space, env.action_space))
    for name, cast in runs.items():
        if (cast.name, cast.env_params) != (stage.name, stage.env_params):
            where = f"{cast.name} with {cast.env_params}, {next(iter(runs))} in {stage.name} with {stage.env_params}"
            raise ConfigError(f"who = {name!r}: plays in {where}; all must play in the same environment")
        if form(cast.env) != form(stage.env):
            raise ConfigError(f"who = {name!r}: observes or does something else than {next(iter(runs))} does")
    return [runs.get(name) or _of_function(name, stage) for name in names]


def _is_run(name: str) -> bool:
    """Returns whether a player's name is that of a run, or of an agent of one, and not a function's."""
    directory, agent = choosing.parsed(name)
    return name != RANDOM and (":" not in name or os.path.isdir(directory) or agent.isdecimal())


def _of_run(name: str, options: RecordOptions, env_params: dict[str, Any]) -> Cast:
    """Makes the player of an agent of a run, in the environment that it was trained in.

    Where the critic saw more, observations are what the policy reads, as other algorithms see them.
    """
    if options.env:
        raise ConfigError(f"env = {options.env!r}: {name} plays in its own environment; omit --env")
    directory, number = choosing.parsed(name)
    if options.agent != type(options).agent and (number or len(options.who) > 1):
        raise ConfigError(f"agent = {options.agent!r}: is for a single run; name the agent in its place, as RUN:AGENT")
    agent = _agent(str(directory), number or options.agent, options, env_params)
    about = {"run": directory.name, "agent": agent.choice.of[1], **agent.label}
    about |= {field: agent.saved[field] for field in ("algo", "sha256")}
    about |= evaluation.manner(options.sample, agent.simulations)
    copies = agent.saved["config"].get("num_envs", COPIES)
    env, acts = agent.env, player(agent.learner, agent.policy, sample=options.sample)
    if agent.learner.own:
        env, fill = agents.only(env, agent.learner.own)
        whole = acts.act
        acts = acts._replace(act=lambda here, key: whole(here._replace(obs=fill(here.obs)), key))
    return Cast(agent.saved["env"], agent.env_params, env, acts, about, copies)


def _named(name: str, options: RecordOptions, env_params: dict[str, Any]) -> Cast:
    """Makes the environment of players that are no runs, the first of which has this name, with random play."""
    if not options.env:
        raise ConfigError(f"env: is missing; {name} needs --env")
    for field, unset in (("agent", type(options).agent), ("sample", False), ("simulations", None)):
        if (value := getattr(options, field)) != unset:
            raise ConfigError(f"{field} = {value}: {name} is not a run; omit --{field}")
    env = agents.own(checked(options.env, env_params))
    return Cast(options.env, env_params, env, random_player(env), {"function": RANDOM})


def _of_function(name: str, stage: Cast) -> Cast:
    """Makes the player that ``MODULE:FUNCTION`` returns for an environment, or one of random actions."""
    function, field = random_player if name == RANDOM else imported("policy", name), f"policy = {name!r}"
    if not callable(function):
        raise ConfigError(f"{field}: is {type(function).__name__}, must be a function that gives a Player")
    made = called("policy", name, function, stage.env)
    if not isinstance(made, Player):
        raise ConfigError(f"{field}: gives {type(made).__name__}, must give a purerl.loops.evaluation.Player")
    return stage._replace(player=made, policy={"function": name}, copies=COPIES)


def _agent(run: str, name: str, options: RecordOptions | RenderOptions, env_params: dict[str, Any]) -> Agent:
    """Reads an agent of a run, in its environment with ``env_params`` in place of its own."""
    trust = trusted_modules.memory(options.trust)
    how: dict[str, Any] = {"env_params": env_params, "playing": True, "simulations": options.simulations}
    agent = loading.agent(run, name, trust=trust, **how)
    choosing.tell(agent.choice)
    return agent


def recorded_in_words(path: str, card: dict[str, Any]) -> str:
    """Formats the card of the dataset at ``path`` as text."""
    size, returns = here(path).stat().st_size, [card[f"return_{what}"] for what in ("mean", "min", "max")]
    players = contents.players(card)
    sampled = "sampled " if all(each.get("sampled") for each in players) else ""
    told = words.simulations(players[0])
    if len(players) > 1:
        told = " (" + ", ".join(f"{each['episodes']} by {each['words']}" for each in players) + ")"
    played = (
        f"{card['episodes']} {sampled}episodes of {card['env']}{told}, "
        f"{card['steps']} steps, {card['truncated']} cut off"
    )
    scores = "mean return {:.2f}, from {:.2f} to {:.2f}".format(*returns)
    return f"{printable(path)}: {played}; {scores}; {size:,} bytes, sha256 {card['sha256'][:12]}"


STEPS = 64
"""The number of steps that are played at once."""
HOLD = 0.8
"""The seconds for which the last picture of an episode stays."""


class Played(NamedTuple):
    """A step of an episode.

    - ``moment``: the moment before it.
    - ``reward``: the rewards of all agents, ``[N]``.
    - ``end``: how the episode ended after it; empty if it did not.
    - ``last``: the moment after it, if the episode ended.
    """

    moment: Moment
    reward: np.ndarray
    end: str = ""
    last: Moment | None = None


def render(options: RenderOptions, env_params: dict[str, Any]) -> tuple[Path, int, str]:
    """Writes the film that ``options`` ask for, with ``env_params`` in place of those of the run.

    Beside a film in the directory of the run the file `filmed.NAME` has its episodes.

    Returns:
        Its path, the number of its pictures, and how its episodes went, in words.

    Raises:
        ConfigError: The options are not possible. Nothing is played.
    """
    path = here(options.out) if options.out else here(options.run) / FILMS[0]
    check_out(path, overwrite=options.overwrite, given=bool(options.out))
    films.check(path)
    agent = _agent(options.run, options.agent, options, env_params)
    stage = (_OnHost if agent.env.host else _Compiled)(agent, options.sample)
    fps, strip = options.fps or stage.drawing.fps, max(12, options.size // 16)
    key = jax.random.fold_in(jax.random.key(options.seed), RENDERING_SALT)
    played: list[Episode] = []

    def frame(moment: Moment, line: str) -> np.ndarray:
        picture = stage.drawing.frame(moment, options.size - strip)
        return captioned(searches.beside(picture, moment.found) if agent.learner.search else picture, line, strip)

    def pictures() -> Iterator[Picture]:
        for number in range(options.episodes):
            total = np.zeros(agent.env.num_agents)
            for time, step in enumerate(stage.episode(jax.random.fold_in(key, number), options.max_steps)):
                before = f"step {time}, {filmed.in_words([total.tolist()])}"
                total = total + step.reward
                after = filmed.in_words([total.tolist()])
                caption = f"reward {np.mean(step.reward):.4g}, {after}"
                yield Picture(frame(step.moment, before), f"episode {number}, step {time}, {caption}", 1)
                if step.last:
                    caption = f"episode {number}, {step.end} after {time + 1} steps, {after}"
                    last = frame(step.last, f"step {time + 1}, {after}")
                    yield Picture(last, caption, 1 + round(HOLD * fps))
                    played.append(Episode(total.tolist(), time + 1, step.end))

    with contextlib.closing(stage):
        frames = films.write(path, pictures(), fps)
    how = evaluation.manner(options.sample, agent.simulations)
    if path.parent.resolve() == here(options.run).resolve():
        about = {"agent": agent.choice.of[1], **agent.label, "seed_of_episodes": options.seed, **how}
        filmed.add(path, about, played)
    return path, frames, filmed.told(how, [episode.returns for episode in played])


class _Compiled:
    """An environment that an agent plays in, drawn from its states."""

    def __init__(self, agent: Agent, sample: bool):
        env, whole = agent.env, watched(agent.learner, agent.policy, sample=sample)

        def begin(key: Array) -> Situation:
            return playing(key, env, whole, 1)[0]()

        def play(key: Array, here: Situation, first: Array) -> tuple[Situation, tuple[PyTree, ...]]:
            move = playing(key, env, whole, 1)[1]

            def one(here: Situation, time: Array):
                after, action, step = move(here, time)
                carry, found = after.carry
                shown = here.env_state, here.obs
                return after._replace(carry=(carry, ())), (shown, action, step._replace(next_obs=()), found)

            here, (shown, *rest) = jax.lax.scan(one, here, first + jnp.arange(STEPS))
            last = here.env_state, here.obs
            shown = jax.tree.map(lambda rows, after: jnp.concatenate([rows, after[None]]), shown, last)
            return here, (shown, *rest)

        how = backend.compiler_options()
        self._begin, self._play = (jax.jit(function, compiler_options=how) for function in (begin, play))
        self._several = env.num_agents > 1
        self.drawing = drawings.drawing(agent.saved["env"], agent.env_params, env.observation_space)

    def close(self) -> None:
        """Does nothing, because nothing is open."""

    def episode(self, key: Array, max_steps: int) -> Iterator[Played]:
        """Plays an episode, yielding its steps. Consumes ``key``."""
        here = self._begin(key)
        for first in itertools.count(0, STEPS):
            here, rows = self._play(key, here, first)
            shown, action, step, found = jax.device_get(rows)
            for i in range(min(STEPS, max_steps - first)):
                before, over = self._moment(shown, i, trees.take(action, i)), step.game_over[i].all()
                before = before._replace(found=trees.take(found, (i, 0)))
                if over or first + i + 1 == max_steps:
                    end = "terminated" if step.terminated[i].all() else "cut off"
                    yield Played(before, step.reward[i], end, self._moment(shown, i + 1, None))
                    return
                yield Played(before, step.reward[i])

    def _moment(self, shown: tuple[PyTree, PyTree], i: int, action: Any) -> Moment:
        """Returns the moment ``i`` of ``shown``: states ``[T + 1, 1]`` and observations ``[T + 1, N]`` of ``N`` agents.

        ``action`` are the actions ``[N]`` that are taken; None in the last moment.
        """
        state, obs = jax.tree.map(lambda x: x[i], shown)
        own = lambda tree: tree if self._several else jax.tree.map(lambda x: x[0], tree)
        state = drawings.innermost(jax.tree.map(lambda x: x[0], state))
        return Moment(state, own(obs), None if action is None else own(action))


class _OnHost:
    """An environment of the host that an agent plays in, and that draws itself, or whose observations are images.

    Making it raises `ConfigError` if there is neither.
    """

    def __init__(self, agent: Agent, sample: bool):
        env, whole = agent.env, player(agent.learner, agent.policy, sample=sample)
        self._batch = (env.host.pictured or env.host.batch)(1)
        image = boards.image(env.observation_space)
        if self._batch.frame is None and image is None:
            self.close()
            raise ConfigError(
                f"env = {agent.saved['env']!r}: cannot be rendered (needs render_mode 'rgb_array', or images as"
                " observations)"
            )
        self._frame = self._batch.frame or (lambda i: None)
        self._playing = Playing(lambda given: (env, whole))
        try:
            self._batch.reset(np.zeros(1, np.int64))
            self._frame(0)
        except BaseException:
            self.close()
            raise
        if self._batch.frame is None and image is not None:
            draw, _, width = boards.planes(image, env.observation_space)
            self.drawing = Drawing(draw, env.host.fps, width)
        else:
            self.drawing = Drawing(lambda moment, sheet: sheet.photo(moment.state), env.host.fps)

    def close(self) -> None:
        """Closes the environment."""
        self._batch.close()

    def episode(self, key: Array, max_steps: int) -> Iterator[Played]:
        """Plays an episode, yielding its steps. Consumes ``key``.

        The picture of a moment is taken before its step. The last picture of an episode that ended is the one of the
        step before, since the next episode has begun then; but where observations are drawn it is the last one.
        """
        before: list[Any] = []

        def step(action: np.ndarray) -> Turn:
            before[:] = [self._frame(0)]
            return self._batch.step(action)

        stepper = local.inline(self._batch._replace(step=step))
        rows = self._playing.rows(stepper, key[None], (np.zeros(1),), 1)
        for time, row in enumerate(rows, 1):
            obs, action, reward, terminated = (jax.tree.map(lambda x: np.asarray(x)[0], x) for x in row[:4])
            over = np.asarray(row.game_over).all()
            moment = Moment(before[0], obs, action)
            if over or time == max_steps:
                next_obs = jax.tree.map(lambda x: np.asarray(x)[0], row.next_obs)
                last = Moment(before[0] if over else self._frame(0), next_obs, None)
                yield Played(moment, reward, "terminated" if terminated.all() else "cut off", last)
                return
            yield Played(moment, reward)
