"""Evolution of learned functions: every generation trains agents from scratch, each with one candidate function.

Lu et al. 2022 (arXiv 2210.05639, section 4.1) found LPO in this way, and PureJaxRL a value loss. A search is a bundle
with ``init`` and ``step`` like a `Trainer`, one step per generation, so the same host code runs both in chunks.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from purerl import loops, population, trees
from purerl.envs.union import union
from purerl.learned.sockets import Socket, same_env
from purerl.loops.evaluation import evaluate
from purerl.meta.strategies import Strategy, ranks
from purerl.meta.strategies import make as make_strategy
from purerl.population.layouts import spread
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer

Fitness = Callable[[Metrics], Array]
"""Maps the metrics ``[iterations]`` of one training to a scalar, which is maximised."""
TRIAL, TRIAL_EPISODES = 2**31 + 3, 64
"""The number that is folded into the key of a training for its trial, so that a trial uses no key of the training; and
the episodes of a trial, which are played side by side (arXiv 2211.11030: 64)."""


class Search(NamedTuple):
    """The whole state of a search. ``generation`` is the number of finished generations (int32)."""

    strategy: PyTree
    generation: Array
    key: Key


class Task(NamedTuple):
    """An environment, and the algorithm's config, whose length is the agent's lifetime.

    ``name`` is the task's name in metrics.
    """

    env: Env
    config: Any
    name: str = ""


class Tasks(NamedTuple):
    """How the candidates of a generation are tried, and how they score.

    ``live(candidates [P], key) -> fitness [P, tasks, S]`` consumes its key. ``score(fitness [P, tasks]) -> [P]`` takes
    the means over the ``S`` trainings of a candidate. ``each(fitness)`` returns metrics of single tasks, by name.
    """

    live: Callable[[PyTree, Key], Array]
    score: Callable[[Array], Array]
    each: Callable[[Array], Metrics] = lambda fitness: {}


class Evolution(NamedTuple):
    """A search as pure functions: ``init(key)``, which consumes its key, and ``step(state)``, one generation.

    ``mean(state)`` returns the current meta-parameters. ``frames`` is the number of environment steps of a generation,
    over all its trainings (a Python integer; 0 if unknown). ``devices`` are the devices that it runs on.
    """

    init: Callable[[Key], PyTree]
    step: Callable[[PyTree], tuple[PyTree, Metrics]]
    mean: Callable[[PyTree], PyTree]
    frames: int = 0
    devices: tuple[jax.Device, ...] = ()


def lifetime_return(metrics: Metrics) -> Array:
    """Computes the mean of the most recent ``episode_return`` over a training's metrics ``[iterations]``, a scalar.

    An iteration in which no episode ended repeats the return of the one before it, so that long episodes do not count
    for less. Iterations before the first end of an episode do not count; the mean is nan if no episode ever ended. It
    corresponds to PureJaxRL's mean of ``returned_episode_returns``, per iteration in place of per step.
    """
    ended = metrics["episodes"] > 0
    index = jnp.arange(ended.shape[0])
    newest = jax.lax.cummax(jnp.where(ended, index, -1))
    returns = metrics["episode_return"][jnp.maximum(newest, 0)]
    return jnp.sum(jnp.where(newest >= 0, returns, 0.0)) / jnp.sum(newest >= 0)


def lifetime(
    make_trainer: Callable[..., Trainer],
    num_iterations: int,
    fitness: Fitness = lifetime_return,
    trial: Callable[..., Env] | None = None,
) -> Callable[[PyTree, Key], Array]:
    """Returns ``live(given, key)``: the fitness of one training of ``make_trainer(**given)``, which consumes ``key``.

    With a ``trial`` the fitness is the mean return of the trained policy in the environment ``trial(**given)``, where
    it always takes its most likely action and learns no more. The fitness is -inf if the training died or its fitness
    is nan.
    """

    def live(given: dict[str, PyTree], key: Key) -> Array:
        trainer = make_trainer(**given)
        state, metrics = loops.train(trainer, num_iterations)(key)
        if trial is None:
            score = fitness(metrics)
        else:
            learner, policy = trainer.learner, trainer.learner.policy(state.learner)
            played = evaluate(jax.random.fold_in(key, TRIAL), trial(**given), learner, policy, TRIAL_EPISODES)
            score = jnp.mean(played.episode_return)
        return jnp.where(metrics["alive"][-1] & ~jnp.isnan(score), score, -jnp.inf)

    return live


OF_TASK = "fitness/"
"""What the names of the metrics of single tasks begin with."""
LANES = 8
"""Trainings that a CPU core computes at once. A search promises only its own bits, and not those of single trainings,
so it can use the number that was fastest for small networks."""


def placed(size: int, devices: Sequence[jax.Device] | None = None, lanes: int | None = None) -> population.Layout:
    """Lays out ``size`` trainings of a search on ``devices`` (default: all).

    A device computes ``lanes`` trainings at once (default: `LANES` on CPU, all elsewhere).
    """
    on_cpu = (devices or jax.devices())[0].platform == "cpu"
    return population.layout(size, devices, lanes or (LANES if on_cpu else None))


def lifetimes(
    make_trainer: Callable[..., Trainer],
    num_iterations: int,
    num_candidates: int,
    num_seeds: int,
    *,
    fitness: Fitness = lifetime_return,
    trial: Callable[..., Env] | None = None,
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> Callable[[PyTree, Key], Array]:
    """Returns ``live(candidates [P], keys) -> fitness [P, S]``, which runs whole trainings as `lives` does.

    ``keys`` are ``[S]``, with which every candidate trains (common random numbers), or ``[P, S]``.
    ``make_trainer(meta_params=...)`` makes the `Trainer` of a candidate.
    """
    shape = num_candidates, num_seeds
    candidate = np.arange(num_candidates).repeat(num_seeds)
    live_all = lives(make_trainer, num_iterations, candidate.size, fitness, trial, devices, lanes)

    def run(candidates: PyTree, keys: Key) -> Array:
        given = {"meta_params": trees.take(candidates, candidate)}
        return live_all(given, jnp.broadcast_to(keys, shape).reshape(-1)).reshape(shape)

    return run


def lives(
    make_trainer: Callable[..., Trainer],
    num_iterations: int,
    size: int,
    fitness: Fitness = lifetime_return,
    trial: Callable[..., Env] | None = None,
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> Callable[[PyTree, Key], Array]:
    """Returns ``live(given [N], keys [N]) -> fitness [N]``, which runs ``size`` whole trainings on all devices.

    Each training has its own key and its own arguments ``given``, of which ``make_trainer(**given)`` makes its
    `Trainer`. ``fitness`` and ``trial`` are as for `lifetime`, ``devices`` and ``lanes`` as for `placed`.
    """
    live, layout = lifetime(make_trainer, num_iterations, fitness, trial), placed(size, devices, lanes)
    live_all = spread(lambda member, _: ((), live(member.given, member.keys)), layout)

    def run(given: PyTree, keys: Key) -> Array:
        members = trees.fill(population.Members(given, keys), layout.size)
        results = live_all(members, ())[1]
        if len(layout.devices) > 1:  # replicated, so that results do not depend on the number of devices
            results = jax.lax.with_sharding_constraint(results, NamedSharding(layout.mesh, PartitionSpec()))
        return results[:size]

    return run


def evolution(strategy: Strategy, mean: Callable[[Key], PyTree], tasks: Tasks) -> Evolution:
    """Makes a search for the meta-parameters whose trainings have the highest fitness.

    Metrics of a generation: ``fitness``, the mean over all trainings with finite fitness; ``fitness_best`` and
    ``fitness_worst`` over candidates whose trainings all have one; ``alive``, the fraction of trainings that have one;
    and the metrics of ``tasks.each``.

    Args:
        strategy: The evolution strategy.
        mean: ``mean(key)`` makes the initial meta-parameters.
        tasks: How candidates are tried, and how they score.
    """

    def init(key: Key) -> Search:
        key, key_mean, key_strategy = jax.random.split(key, 3)
        return Search(strategy.init(key_strategy, mean(key_mean)), jnp.zeros((), jnp.int32), key)

    def step(state: Search) -> tuple[Search, Metrics]:
        key, key_ask, key_tell, key_live = jax.random.split(state.key, 4)
        candidates, asked = strategy.ask(key_ask, state.strategy)
        fitness = tasks.live(candidates, key_live)
        updated = strategy.tell(key_tell, candidates, tasks.score(jnp.mean(fitness, axis=2)), asked)
        return Search(updated, state.generation + 1, key), _summary(fitness) | tasks.each(fitness)

    return Evolution(init, step, lambda state: strategy.mean(state.strategy))


def scores(fitness: Array) -> Array:
    """Computes one score ``[P]`` per candidate from its fitness in each task ``[P, tasks]``.

    With one task the score is the fitness itself, with several the mean rank (`strategies.ranks`). A candidate with a
    non-finite fitness in a task ranks last there, and scores -inf if it has no finite fitness in any task. A task in
    which no candidate has a finite fitness does not count.
    """
    if fitness.shape[1] == 1:
        return fitness[:, 0]
    some = jnp.any(jnp.isfinite(fitness), axis=0)
    placed = jax.vmap(ranks, in_axes=1, out_axes=1)(fitness)
    mean = jnp.sum(jnp.where(some[None], placed, 0.0), axis=1) / jnp.sum(some)
    return jnp.where(jnp.any(jnp.isfinite(fitness), axis=1), mean, -jnp.inf)


def pair_scores(fitness: Array) -> Array:
    """Computes one score ``[P]`` per candidate by comparing it with its mirror image, from fitness ``[P, 1]``.

    The score is 1 if the candidate is fitter in their only task, -1 if it is less fit, 0 if neither. Candidate ``i`` of
    the first half mirrors candidate ``i + P / 2``. A non-finite fitness is the lowest.
    """
    first, second = jnp.split(jnp.where(jnp.isfinite(fitness[:, 0]), fitness[:, 0], -jnp.inf), 2)
    better = (first > second).astype(jnp.float32) - (first < second)
    return jnp.concatenate([better, -better])


class Evolved(NamedTuple):
    """The result of a whole search: the final meta-parameters, the final state, and metrics ``[generations]``."""

    meta_params: PyTree
    state: Search
    metrics: Metrics


def make_search(
    socket: Socket,
    algo: Any,
    tasks: Sequence[Task],
    strategy: Strategy,
    *,
    num_seeds: int = 1,
    paired: bool = False,
    fitness: Fitness = lifetime_return,
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> Evolution:
    """Makes a search for the function of a socket, by evolution.

    Args:
        socket: The socket.
        algo: An algorithm of `purerl.algos`.
        tasks: The environments and configs of agents. The environments of a socket on the environment's side are
            brought into common spaces (`purerl.envs.union`).
        strategy: The evolution strategy.
        num_seeds: Trainings of a candidate in each task that it is tried in.
        paired: If False, every candidate is tried in every task, on the same keys, and scores its mean rank (`scores`).
            If True, each antithetic pair of candidates is tried in one task alone, on keys of its own, and scores by
            which of the two was fitter (`pair_scores`; Jackson et al. 2023, arXiv 2310.02782, appendix). Then the
            strategy's candidates must be antithetic, with at least as many pairs as there are tasks.
        fitness: The fitness of a training by its metrics, unless the socket has a trial; it is multiplied by the
            socket's sign.
        devices: As for `placed`.
        lanes: As for `placed`.
    """
    if len(tasks) > 1 and socket.env is not same_env:
        together = union([task.env for task in tasks])
        tasks = [task._replace(env=together(i)) for i, task in enumerate(tasks)]
    tried = _in_pairs(strategy.size, len(tasks)) if paired else [np.arange(strategy.size) for _ in tasks]

    def lives_in(task: Task, num_candidates: int) -> Callable[[PyTree, Key], Array]:
        def make_trainer(meta_params: PyTree) -> Trainer:
            parts = socket.parts(meta_params, task.config)
            return algo.make_trainer(task.config, socket.env(meta_params, task.env), **parts)

        judged, shape = judge(socket, task.env, fitness), (task.config.num_iterations, num_candidates, num_seeds)
        return lifetimes(make_trainer, *shape, **judged, devices=devices, lanes=lanes)

    lives_of_tasks = [lives_in(task, len(rows)) for task, rows in zip(tasks, tried, strict=True)]

    def each(fitness: Array) -> Metrics:
        of_task = [fitness[rows, 0 if paired else i] for i, rows in enumerate(tried)]
        return {f"{OF_TASK}{task.name}": _summary(x)["fitness"] for task, x in zip(tasks, of_task, strict=True)}

    one = [algo.make_trainer(task.config, task.env).frames(task.config.num_iterations) for task in tasks]
    frames = num_seeds * sum(len(rows) * each for rows, each in zip(tried, one, strict=True))
    used = placed(num_seeds * min(len(rows) for rows in tried), devices, lanes).devices
    live = _paired(lives_of_tasks, tried, num_seeds) if paired else _shared(lives_of_tasks, num_seeds)
    score, named = pair_scores if paired else scores, {"each": each} if len(tasks) > 1 else {}
    result = evolution(strategy, socket.init, Tasks(live, score, **named))
    return result._replace(frames=frames, devices=used)


def _in_pairs(size: int, num_tasks: int) -> list[np.ndarray]:
    """Deals antithetic pairs of ``size`` candidates to tasks in turn, and returns the candidates of each task."""
    half = size // 2
    firsts = [np.arange(half)[i::num_tasks] for i in range(num_tasks)]
    return [np.concatenate([first, half + first]) for first in firsts]


def _shared(lives_of_tasks: Sequence[Callable[[PyTree, Key], Array]], num_seeds: int) -> Callable[[PyTree, Key], Array]:
    """Returns a `Tasks.live` that tries every candidate in every task, on the same keys."""

    def live(candidates: PyTree, key: Key) -> Array:
        keys = jax.random.split(key, num_seeds)
        return jnp.stack([lives(candidates, keys) for lives in lives_of_tasks], axis=1)

    return live


def _paired(
    lives_of_tasks: Sequence[Callable[[PyTree, Key], Array]], tried: Sequence[np.ndarray], num_seeds: int
) -> Callable[[PyTree, Key], Array]:
    """Returns a `Tasks.live` that tries each antithetic pair in one task, on keys of its own (`_in_pairs`)."""
    order = np.concatenate(tried)

    def live(candidates: PyTree, key: Key) -> Array:
        keys = jnp.tile(jax.random.split(key, (len(order) // 2, num_seeds)), (2, 1))
        pairs = zip(lives_of_tasks, tried, strict=True)
        results = [lives(trees.take(candidates, rows), keys[rows]) for lives, rows in pairs]
        return jnp.concatenate(results)[np.argsort(order)][:, None]

    return live


def judge(socket: Socket, env: Env, fitness: Fitness = lifetime_return) -> dict[str, Any]:
    """Returns the ``fitness`` and the ``trial`` of `lifetime` by which trainings of a socket in ``env`` are judged.

    ``fitness`` is a function of the metrics of a training.
    """
    signed = fitness if socket.sign == 1 else lambda metrics: socket.sign * fitness(metrics)
    if (trial := socket.trial) is None:
        return {"fitness": signed}
    return {"fitness": signed, "trial": lambda meta_params: trial(meta_params, env)}


def evolve(
    socket: Socket,
    algo: Any,
    config: Any,
    envs: Sequence[Env],
    *,
    strategy: str | Strategy = "Open_ES",
    population: int = 64,
    generations: int = 100,
    strategy_options: dict[str, float] | None = None,
    **options: Any,
) -> Callable[[Key], Evolved]:
    """Returns ``search(key) -> Evolved``, to jit: a whole search as one program, which consumes ``key``.

    The command line runs the same search in chunks, and saves a checkpoint after each. ::

        search = evolve(sockets.value_loss(), ppo, ppo.Config(total_steps=32768), [envs.make("CartPole-v1")])
        result = jax.jit(search)(jax.random.key(0))
        ppo.make_train(config, env, **sockets.value_loss().parts(result.meta_params, config))

    Args:
        socket: The socket whose function is learned.
        algo: An algorithm of `purerl.algos`.
        config: The Config of ``algo``.
        envs: The environments to train in.
        strategy: A `Strategy`, or the name of one (`strategies.make`).
        population: The number of candidates of a strategy that is given by name.
        generations: The number of generations.
        strategy_options: Further arguments of `strategies.make`.
        options: Further arguments of `make_search`.
    """
    if isinstance(strategy, str):
        like = jax.eval_shape(socket.init, jax.random.key(0))
        strategy = make_strategy(strategy, population, trees.zeros(like), **(strategy_options or {}))
    tasks = [Task(env, config, f"{i}") for i, env in enumerate(envs)]
    bundle = make_search(socket, algo, tasks, strategy, **options)

    def search(key: Key) -> Evolved:
        state, metrics = jax.lax.scan(lambda state, _: bundle.step(state), bundle.init(key), None, generations)
        return Evolved(bundle.mean(state), state, metrics)

    return search


def _summary(fitness: Array) -> Metrics:
    """Computes the metrics of a generation from the fitness ``[P, ...]`` of its trainings."""
    alive = jnp.isfinite(fitness)
    total = jnp.sum(jnp.where(alive, fitness, 0.0))
    each = jnp.mean(fitness.reshape(fitness.shape[0], -1), axis=1)
    sound = jnp.isfinite(each)
    some = jnp.any(sound)
    return {
        "fitness": total / jnp.sum(alive),
        "fitness_best": jnp.where(some, jnp.max(jnp.where(sound, each, -jnp.inf)), jnp.nan),
        "fitness_worst": jnp.where(some, jnp.min(jnp.where(sound, each, jnp.inf)), jnp.nan),
        "alive": jnp.mean(alive),
    }
