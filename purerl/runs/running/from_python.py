"""Runs from Python: trainings in chunks with their progress, metrics as numbers and tables, policies as functions."""

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import loops, population, spaces, trees
from purerl.display.lines import RUN, Line, grouped
from purerl.display.progress import Report, console, show
from purerl.envs import agents, seats
from purerl.errors import ConfigError
from purerl.hosts.opening import How
from purerl.loops.evaluation import Evaluation, chosen_by, evaluate, player
from purerl.names import Trust, here, tell_once
from purerl.runs.reading import evaluation, host_evaluation, loading, run_curves
from purerl.runs.reading.host_evaluation import Playing, Venue
from purerl.runs.running import device_program, run_loop
from purerl.runs.running.device_program import RunProgram
from purerl.runs.running.host_program import HostProgram
from purerl.store import metrics as watched
from purerl.types import Key, Metrics, PyTree, Result, Situation, Trainer, TrainState

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas

Source = loading.Run | str | Path | Mapping[str, Any]
"""What `plot` draws: a run, a run directory, or the metrics of a training."""


class Progress:
    """Shows how far a training is: a bar in a terminal and in a notebook, lines elsewhere.

    Give it to `train_in_chunks` as ``on_chunk``.
    """

    def __init__(self) -> None:
        self._report: Report = lambda env_steps, returns, alive: None
        self._frames, self._done = 0, 0

    @contextlib.contextmanager
    def shown(self, trainer: Trainer, num_iterations: int) -> Iterator[None]:
        """Shows the progress of a training within the context."""
        self._frames, self._done = trainer.counts, 0
        unit = trainer.unit
        with show(console(), max(1, self._frames * num_iterations), unit=unit) as self._report:
            yield

    def __call__(self, state: TrainState, metrics: Metrics) -> None:
        """Reports a chunk of iterations."""
        rows = _by_iteration(metrics)
        self._done += len(rows["alive"]) * self._frames
        self._report(self._done, watched.returns(rows), int(rows["alive"][-1].sum()))


def progress() -> Progress:
    """Makes what shows the progress of a training if `train_in_chunks` gets it as ``on_chunk``."""
    return Progress()


def means(metrics: Metrics) -> dict[str, float]:
    """Returns each of the metrics of a training as one number.

    It is the mean over the iterations and agents in which the metric exists; for the return and the length of episodes
    the mean over the episodes that ended; for ``episodes`` the sum; and for ``alive`` and ``stopped`` the number of
    agents that are so at the end. Of several agents there are also quantiles of the return over those in which an
    episode ended.

    Args:
        metrics: Of `types.Result`, each ``[iterations]``, or of several agents ``[P, iterations]``.
    """
    return watched.means(_by_iteration(metrics))


def frame(source: Any) -> "pandas.DataFrame":
    """Returns metrics as a table of pandas: a row for each iteration, of several agents for each of theirs.

    Args:
        source: The metrics of `types.Result`, each ``[iterations]`` or ``[P, iterations]``; or a run (`load`), whose
            agents have their label and the values that were swept. A metric with the name of one of these, such as the
            learning rate, which decays, is called ``learning_rate.logged``.

    Raises:
        ImportError: There is no pandas.
        ConfigError: The run has no log.
    """
    import pandas

    is_run = isinstance(source, loading.Run)
    settings: dict[str, np.ndarray] = source.settings if is_run else {}
    values: Mapping[str, Any] = source.metrics if is_run else source
    arrays = {name: np.asarray(array) for name, array in values.items()}
    shape = np.shape(next(iter(arrays.values()), np.empty(0)))
    agents, iterations = (np.reshape(x, -1) for x in np.indices(shape if len(shape) == 2 else (1, *shape)))
    columns = {"agent": agents} if len(shape) == 2 else {}
    columns |= {name: of_agents[agents] for name, of_agents in settings.items()}
    columns |= {"iteration": iterations + 1}
    named = lambda name: f"{name}.logged" if name in columns else name
    return pandas.DataFrame(columns | {named(name): array.reshape(-1) for name, array in arrays.items()})


def plot(
    source: "Source | Mapping[str, Source]", metric: str = "episode_return", *, group_by: str = ""
) -> "matplotlib.figure.Figure":
    """Draws a metric of trainings as curves, in a figure that a notebook shows; ``savefig`` writes it to a file.

    A curve is the interquartile mean over its agents, with its 95 % bootstrap interval from 5 agents on. Of more than 8
    curves there is one for each value of a setting, as in ``purerl plot``.

    Args:
        source: The metrics of `types.Result`, each ``[iterations]`` or ``[P, iterations]``; a run (`load`) or its
            directory, of a sweep all its configurations; or several of these by the names of their curves.
        metric: The name of the metric; of a run any number in its logs, such as ``eval_return``.
        group_by: The setting that has a curve for each of its values. Empty: chosen if there are too many curves.

    Raises:
        ConfigError: A source has no such metric, or a run has no log.
    """
    from purerl.display import curves, words

    one = loading.Run, str, Path, Mapping
    several = isinstance(source, Mapping) and all(isinstance(each, one) for each in source.values())
    sources: Any = source if several else {"": source}
    if len({isinstance(each, Mapping) for each in sources.values()}) > 1:
        raise ConfigError("source: metrics have iterations and runs have frames; `save` the metrics as a run")
    drawn = grouped([line for name, each in sources.items() for line in _lines(name, each, metric)], group_by)
    axis = "iterations" if any(isinstance(each, Mapping) for each in sources.values()) else "frames"
    return curves.learning_figure(drawn.lines, (axis, words.shown(metric)), "", drawn.told)


def _lines(name: str, source: "Source", metric: str) -> list[Line]:
    """Returns the lines of a metric of one source: of a run one for each configuration, from its logs."""
    if isinstance(source, loading.Run | str | Path):
        directory = source.directory if isinstance(source, loading.Run) else here(source)
        lines = run_curves.lines([directory], metric)
        own = lambda line: ": ".join(filter(None, [name, line.name if len(lines) > 1 or not name else ""]))
        return [line._replace(name=own(line), settings={**line.settings, RUN: name}) for line in lines]
    if metric not in source:
        raise ConfigError(f"metric = {metric!r}: {name or 'the training'} has {', '.join(source)}")
    values = np.atleast_2d(np.asarray(source[metric], np.float64))
    there = np.isfinite(values).any(axis=0)
    if not there.any():
        raise ConfigError(f"metric = {metric!r}: {name or 'the training'} has no value of it")
    return [Line(name or "training", np.flatnonzero(there) + 1.0, values[:, there], {RUN: name})]


def _by_iteration(metrics: Metrics) -> dict[str, np.ndarray]:
    """Returns metrics ``[iterations]`` or ``[P, iterations]`` as ``[iterations, P]``."""
    return {name: np.atleast_2d(np.asarray(values)).T for name, values in metrics.items()}


def train_in_chunks(
    trainer: Trainer,
    key: Key,
    num_iterations: int,
    on_chunk: Callable[[TrainState, Metrics], Any] = lambda state, metrics: None,
    *,
    every: int = 0,
    eval_episodes: int = 0,
    sample: bool = False,
) -> Result:
    """Trains an agent and calls a function after each chunk of iterations.

    It computes what ``jax.jit(loops.train(trainer, num_iterations))(key)`` computes. Environments of the host are
    stepped in worker processes where that is faster, and closed at the end; data of the host (`replay.streamed`) are
    read while the device computes. Ctrl-C, or a notebook's interrupt, ends the
    training after the chunk, and what was learned until then is returned; a second one raises `KeyboardInterrupt`.

    Args:
        trainer: The trainer.
        key: Consumed.
        num_iterations: The number of iterations.
        on_chunk: Called as ``on_chunk(state, metrics)`` after each chunk, with metrics as numpy arrays
            ``[iterations]``. The training ends early where it returns True. The next chunk overwrites the state: copy
            (`jax.device_get`) what is needed of it. `progress` makes one that shows how far the training is.
        every: If it is not 0, a chunk also ends at each multiple of so many iterations. A chunk takes about a quarter
            of a second.
        eval_episodes: If it is not 0, the agent plays so many episodes with its most likely actions, which do not
            affect the training, after each multiple of ``every`` iterations and after the last one. The metrics
            ``eval_return``, ``eval_return_std`` and ``eval_length`` are their means, and nan in all other iterations;
            of several agents there are those by seat, too, such as ``eval_won/0``.
        sample: Whether the agent draws its actions from its policy's distribution in these episodes instead.

    Returns:
        The last state, and the metrics of all iterations as numpy arrays.

    Raises:
        ConfigError: ``eval_episodes`` is negative or impossible, or there is nothing to ``sample`` or to sample from.
    """
    rows: list[Any] = []
    if eval_episodes < 0:
        raise ConfigError(f"eval_episodes = {eval_episodes}: must be at least 0")
    if sample and not eval_episodes:
        raise ConfigError("sample = True: has no effect without eval_episodes")
    chosen_by(trainer.learner, sample)
    with _noted() as interrupted, contextlib.ExitStack() as stack:
        if isinstance(on_chunk, Progress):
            stack.enter_context(on_chunk.shown(trainer, num_iterations))
        if trainer.host or trainer.stream:
            state, chunks = _hosted(trainer, key, num_iterations, every, stack)
        else:
            state, chunks = _compiled(trainer, key, num_iterations, every)
        if eval_episodes:
            play = _evaluation(trainer, evaluation.keys(key[None], 0), eval_episodes, stack, sample)
            chunks = _evaluated(chunks, play, lambda done: done == num_iterations or bool(every) and done % every == 0)
        for state, metrics in chunks:
            rows.append(metrics)
            if on_chunk(state, metrics) is True or interrupted:
                break
    joined: Any = {name: np.concatenate([each[name] for each in rows]) for name in (rows or [{}])[0]}
    return Result(state, joined)


@contextlib.contextmanager
def _noted() -> Iterator[list[int]]:
    """Puts the first SIGINT within the context into the list that it gives, where Python would raise for it."""
    received: list[int] = []

    def note(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not raises or threading.current_thread() is not threading.main_thread():
        yield received
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


Chunks = Iterator[tuple[TrainState, Any]]
"""The states and metrics after chunks of iterations."""
Started = tuple[TrainState, Chunks]
"""The state that a training begins with, and an iterator over the states and metrics after its chunks."""


def _compiled(trainer: Trainer, key: Key, num_iterations: int, every: int) -> Started:
    """Begins a training that is one compiled program."""
    capacity, chunk_seconds = device_program.CAPACITY, device_program.CHUNK_SECONDS
    advance = jax.jit(loops.chunk(trainer, capacity), donate_argnums=0)
    state = jax.jit(trainer.init)(key)
    chunks = run_loop.advance(
        advance, state, 0, num_iterations, capacity=capacity, chunk_seconds=chunk_seconds, every=every
    )
    cut = lambda chunk: {name: np.asarray(values)[: chunk.length] for name, values in chunk.metrics.items()}
    return state, ((chunk.state, cut(chunk)) for chunk in chunks)


def _hosted(trainer: Trainer, key: Key, num_iterations: int, every: int, stack: contextlib.ExitStack) -> Started:
    """Begins a training in environments or from data of the host, as a population of one; ``stack`` closes them."""
    alone, make = population.Members({}, key[None]), lambda: trainer
    program: RunProgram | HostProgram
    if trainer.stream:
        program = device_program.compile_program(make, alone, stream=trainer.stream)
    else:
        program = HostProgram(make, alone, How(), ahead=0)
    running = stack.enter_context(contextlib.closing(program))
    begun, mine = running.begin(alone), lambda state: trees.take(state, 0)
    chunks = running.chunks(alone, begun, 0, num_iterations, every)
    row = lambda chunk: {name: values[:, 0] for name, values in chunk.metrics.items()}
    return mine(begun), ((mine(chunk.state), row(chunk)) for chunk in chunks)


def _evaluated(
    chunks: Chunks, play: Callable[[TrainState | None], dict[str, float]], due: Callable[[int], bool]
) -> Chunks:
    """Adds the metrics of an evaluation to the last iteration of each chunk after which one is ``due``."""
    done = 0
    for state, metrics in chunks:
        length = len(metrics["alive"])
        done += length
        before = np.full(length - 1, np.nan)
        numbers = play(state if due(done) else None)
        yield state, metrics | {name: np.append(before, number) for name, number in numbers.items()}


def _evaluation(
    trainer: Trainer, key: Key, episodes: int, stack: contextlib.ExitStack, sample: bool
) -> Callable[[TrainState | None], dict[str, float]]:
    """Makes a function that plays episodes with an agent, which follow from ``key`` ``[1]``; all nan without one."""
    env, learner = trainer.fleet.env, trainer.learner
    if env is None:
        raise ConfigError("eval_episodes: the trainer's rows are of no environment that is known")
    if env.host:
        venue = stack.enter_context(contextlib.closing(Venue(min(episodes, trainer.fleet.size // env.num_agents))))
        playing = Playing(lambda policy: (env, player(learner, policy, sample=sample)), host_evaluation.ends)
        each = venue.size(episodes)

        def play(policy: PyTree) -> Any:
            many = jax.tree.map(lambda x: np.asarray(x)[None], policy)
            return host_evaluation.evaluate(playing, venue, key, many, episodes, evaluation.STEPS, each)
    else:
        one = jax.jit(lambda policy: evaluate(key[0], env, learner, policy, episodes, evaluation.STEPS, sample=sample))
        play = lambda policy: jax.tree.map(lambda x: np.asarray(x)[None], one(policy))

    nothing: Any = np.zeros((1, env.num_agents))
    unknown = Evaluation(nothing, nothing, nothing > 0, outcome=() if env.num_agents == 1 else nothing)

    def played(state: TrainState | None) -> dict[str, float]:
        found = play(learner.policy(state.learner)) if state else unknown
        columns = evaluation.columns(evaluation.told(found, env))
        return {name: column[0] if state else np.nan for name, column in columns.items()}

    return played


class Acting:
    """A policy as a plain function of observations, from numpy to numpy, which holds its memory.

    One that draws its actions (``sample``) draws others at each call, which follow from ``seed``; so does what a search
    draws. One that searches in the environment does so where it is given the environment's state.
    """

    def __init__(self, of: loading.Agent, *, sample: bool = False, seed: int = 0):
        learner, policy, self._of = of.learner, of.policy, of
        space, fill = agents.filled(of.env.observation_space, learner.own)
        self._like: Any = spaces.struct(space)
        self._init_carry, self._carry, self._rows = learner.init_carry, None, 0
        choose, self._calls = chosen_by(learner, sample), 0
        key = lambda call: jax.random.fold_in(jax.random.key(seed), call)
        here = lambda obs, carry, states: Situation(fill(obs), carry, states)
        self._act = jax.jit(lambda call, *situation: choose(policy, here(*situation), key(call)))

    def __repr__(self) -> str:
        return f"Acting({self._of.choice.in_words()})"

    def __call__(self, obs: PyTree, *, env_state: PyTree = ()) -> PyTree:
        """Returns an action in an observation, or in each of a batch of observations: the most likely, or a sample.

        Args:
            obs: An observation, or a batch ``[B, ...]`` of them; where the critic saw more, what `Env.own` selects.
                With ``env_state`` of ``N`` agents those of all, ``[N, ...]`` or ``[B, N, ...]``, as `Env.step` does.
            env_state: The environment's state, or a batch ``[B, ...]``, for a policy that searches in the environment.
                Without it such a policy acts by its network alone, and a line says so once.

        Returns:
            An action of `Env.action_space`, or actions ``[B, ...]``; where it is a tree of spaces, a tree of arrays.

        Raises:
            ConfigError: The structure or a shape is not the one of the environment's observations or states; or the
                number of rows differs from that in the memory; or the policy does not search in the environment.
        """
        most = 2 if jax.tree.leaves(env_state) and self._of.env.num_agents > 1 else 1
        leaves, structure = jax.tree.flatten(obs)
        expected: Any = jax.tree.structure(self._like)
        if structure != expected:
            raise ConfigError(f"obs: must be {expected}, but is {structure}")
        likes = trees.named_leaves(self._like)
        arrays = [np.asarray(x) for x in leaves]
        lead = arrays[0].shape[: max(arrays[0].ndim - len(next(iter(likes.values())).shape), 0)]
        for (name, like), x in zip(likes.items(), arrays, strict=True):
            if x.shape != (*lead, *like.shape) or len(lead) > most or 0 in lead:
                problem = f"obs{name and '.' + name}: must be {list(like.shape)} or a batch of these"
                raise ConfigError(f"{problem}, the same for all parts, but is {list(x.shape)}")
        states = self._states(env_state, lead)
        rows = math.prod(lead)
        if self._carry is not None and rows != self._rows and self._remembers():
            raise ConfigError(f"obs: {rows} rows, but the memory has {self._rows}; call reset() first")
        if self._carry is None or rows != self._rows:
            self._carry, self._rows = self._init_carry(rows), rows
        pairs = zip(likes.values(), arrays, strict=True)
        batch = [x.astype(like.dtype).reshape(rows, *like.shape) for like, x in pairs]
        seen = jax.tree.unflatten(structure, batch)
        action, self._carry = self._act(np.uint32(self._calls), seen, self._carry, states)
        self._calls += 1
        return jax.tree.map(lambda x: np.asarray(x).reshape((*lead, *x.shape[1:]))[()], action)

    def _states(self, env_state: PyTree, lead: tuple[int, ...]) -> PyTree:
        """Returns the states ``[B, ...]`` to search in, for observations with the axes ``lead``; ``()`` for none."""
        of, env = self._of, self._of.env
        if not jax.tree.leaves(env_state):
            if of.in_env and of.simulations:
                tell_once(f"{of.saved['algo']} acts by its network alone; with act(obs, env_state=...) it searches")
            return ()
        if of.missing or not of.in_env:
            plain = f"env_state: {of.saved['algo']} does not search in the environment; omit it"
            raise ConfigError(of.missing or plain)
        several = env.num_agents > 1
        if several and lead[-1:] != (env.num_agents,):
            raise ConfigError(f"obs: with env_state must be those of all agents, [..., {env.num_agents}, *obs]")
        batch, like = lead[: len(lead) - several], jax.eval_shape(lambda key: env.reset(key)[0], jax.random.key(0))
        axes = lambda tree, before: jax.tree.map(lambda x: (*before, *np.shape(x)), tree)
        if axes(env_state, ()) != axes(like, batch):
            about = f"with the axes {list(batch)} of obs before its own" if batch else "without a batch, as obs"
            raise ConfigError(f"env_state: must be a state as reset and step of {env.name} return it, {about}")
        rows = jax.tree.map(lambda x, own: jnp.reshape(x, (math.prod(batch), *own.shape)), env_state, like)
        return jax.vmap(lambda inner: seats.begun(env, inner))(rows)

    def _remembers(self) -> bool:
        """Returns whether the memory has changed since it began. What only exploring needs, as a noise, has not."""
        leaves = zip(jax.tree.leaves(self._carry), jax.tree.leaves(self._init_carry(self._rows)), strict=True)
        return any(np.any(np.asarray(x) != np.asarray(begun)) for x, begun in leaves)

    def reset(self, ended: Any = None) -> None:
        """Resets the memory of the policy.

        Args:
            ended: Bool ``[B]``: the rows whose episode has ended, which are reset; None: all.
        """
        if ended is None or self._carry is None:
            self._carry = None
        else:
            self._carry = trees.restart(self._carry, self._init_carry(self._rows), np.asarray(ended, bool))


def acting(
    directory: str | Path,
    agent: int | str = 0,
    *,
    trust: Trust = False,
    sample: bool = False,
    seed: int = 0,
    simulations: int | None = None,
) -> Acting:
    """Makes an `Acting` of an agent of a run directory.

    Args:
        directory: The run directory.
        agent: The number of the agent, "best" or "worst" by the mean return of the final evaluation. ``repr`` of what
            is made says which one it is.
        trust: Whether modules of the user's own that the run names are imported (`names.Trust`).
        sample: Whether actions are drawn from the policy's distribution, instead of the most likely ones.
        seed: The seed of what is drawn.
        simulations: As for `load`.

    Raises:
        ConfigError: The run cannot be read (`load`); or it has no such agent; or the memory of the agent depends on
            rewards; or there is no distribution to ``sample`` from; or ``simulations`` are refused (`load`).
    """
    agent_of_run = loading.agent(directory, agent, trust=trust, simulations=simulations)
    if agent_of_run.learner.restart is not None:
        raise ConfigError(f"{directory}: {agent_of_run.saved['algo']} has a memory of rewards; use purerl.evaluate")
    return Acting(agent_of_run, sample=sample, seed=seed)
