"""Evolution of learned functions: every generation trains whole agents, each with a candidate of its own.

Lu et al. 2022 (arXiv 2210.05639, section 4.1) found LPO like this, and PureJaxRL a value loss. A generation is one step
of a bundle like a training's, so whatever runs trainings in chunks runs this.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import loops, population, trees
from purerl.envs.union import union
from purerl.learned.sockets import Socket
from purerl.meta.strategies import Strategy, ranks
from purerl.meta.strategies import make as make_strategy
from purerl.trees import zeros
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer

Fitness = Callable[[Metrics], Array]
"""Of the metrics ``[iterations]`` of one training, a scalar to be maximised."""


class Search(NamedTuple):
    """Everything that a search needs to go on. ``generation`` counts the finished ones (int32)."""

    strategy: PyTree
    generation: Array
    key: Key


class Evolution(NamedTuple):
    """A search as two pure functions: ``init(key)``, and ``step(state)``, a generation.

    ``mean(state)`` are the meta-parameters that it has come to; ``frames`` are those of a generation, of all its
    trainings together (a Python integer; 0: not told), and ``devices`` those that it runs on.
    """

    init: Callable[[Key], Search]
    step: Callable[[Search], tuple[Search, Metrics]]
    mean: Callable[[Search], PyTree]
    frames: int = 0
    devices: tuple[jax.Device, ...] = ()


def lifetime_return(metrics: Metrics) -> Array:
    """Mean return over the whole training: over iterations, of the newest in which episodes ended.

    An iteration in which none ended has the return of the one before, so that long episodes do not count for less.
    Those before the first do not count; nan if none ever ended. Of the metrics ``[iterations]`` of one training; it is
    PureJaxRL's mean of ``returned_episode_returns``, an iteration at a time.
    """
    ended = metrics["episodes"] > 0
    index = jnp.arange(ended.shape[0])
    newest = jax.lax.cummax(jnp.where(ended, index, -1))
    returns = metrics["episode_return"][jnp.maximum(newest, 0)]
    return jnp.sum(jnp.where(newest >= 0, returns, 0.0)) / jnp.sum(newest >= 0)


def lifetime(
    make_trainer: Callable[..., Trainer], num_iterations: int, fitness: Fitness = lifetime_return
) -> Callable[[PyTree, Key], Array]:
    """``live(given, key)``: the fitness of one training of ``make_trainer(**given)``; ``-inf`` if it died or has
    none."""

    def live(given: dict[str, PyTree], key: Key) -> Array:
        metrics = loops.train(make_trainer(**given), num_iterations)(key).metrics
        score = fitness(metrics)
        return jnp.where(metrics["alive"][-1] & ~jnp.isnan(score), score, -jnp.inf)

    return live


def lifetimes(
    make_trainer: Callable[..., Trainer],
    num_iterations: int,
    num_candidates: int,
    num_tasks: int,
    num_seeds: int,
    *,
    fitness: Fitness = lifetime_return,
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> Callable[[PyTree, Key], Array]:
    """``live(candidates [P], keys [S]) -> [P, tasks, S]``: whole trainings, on all devices.

    Each candidate trains in every task ``0 .. tasks - 1`` with every key, so that all candidates have the same luck.
    ``make_trainer(meta_params=..., task=...)``; ``devices`` and ``lanes`` are as for `population.layout`.
    """
    live = lifetime(make_trainer, num_iterations, fitness)
    shape = num_candidates, num_tasks, num_seeds
    layout = population.layout(num_candidates * num_tasks * num_seeds, devices, lanes)
    live_all = population.spread(lambda member, _: ((), live(member.given, member.keys)), layout)
    candidate, task, seed = (axis.reshape(-1) for axis in jnp.indices(shape, dtype=jnp.int32))

    def run(candidates: PyTree, keys: Key) -> Array:
        given = {"meta_params": trees.take(candidates, candidate), "task": task}
        members = trees.fill(population.Members(given, keys[seed]), layout.size)
        return live_all(members, ())[1][: candidate.size].reshape(shape)

    return run


def evolution(
    strategy: Strategy, mean: Callable[[Key], PyTree], live: Callable[[PyTree, Key], Array], num_tasks: int, seeds: int
) -> Evolution:
    """Searches for the meta-parameters whose trainings are fittest, from ``mean(key)`` on.

    ``live`` is that of `lifetimes`. A candidate's fitness is that of `scores`, of its mean over seeds. Metrics of a
    generation: ``fitness``, the mean over all trainings that have one, ``fitness_best`` and ``fitness_worst`` of the
    candidates that have one everywhere, and ``alive``, the part of the trainings that have one.
    """

    def init(key: Key) -> Search:
        key, key_mean, key_strategy = jax.random.split(key, 3)
        return Search(strategy.init(key_strategy, mean(key_mean)), jnp.zeros((), jnp.int32), key)

    def step(state: Search) -> tuple[Search, Metrics]:
        key, key_ask, key_tell, key_live = jax.random.split(state.key, 4)
        candidates, asked = strategy.ask(key_ask, state.strategy)
        found = live(candidates, jax.random.split(key_live, seeds))  # [P, tasks, S]
        told = strategy.tell(key_tell, candidates, scores(jnp.mean(found, axis=2)), asked)
        return Search(told, state.generation + 1, key), _summary(found)

    return Evolution(init, step, lambda state: strategy.mean(state.strategy))


def scores(fitness: Array) -> Array:
    """One fitness ``[P]`` of those in each task ``[P, tasks]``: the only one; or the mean rank.

    A candidate that has none in a task ranks last there. A task in which no candidate has one does not count.
    """
    if fitness.shape[1] == 1:
        return fitness[:, 0]
    some = jnp.any(jnp.isfinite(fitness), axis=0)
    placed = jax.vmap(ranks, in_axes=1, out_axes=1)(fitness)
    mean = jnp.sum(jnp.where(some[None], placed, 0.0), axis=1) / jnp.sum(some)
    return jnp.where(jnp.any(jnp.isfinite(fitness), axis=1), mean, -jnp.inf)


class Evolved(NamedTuple):
    """What a whole search returns: the meta-parameters that it came to, its last state, and metrics
    ``[generations]``."""

    meta_params: PyTree
    state: Search
    metrics: Metrics


def of(
    socket: Socket,
    algo: Any,
    config: Any,
    envs: Sequence[Env],
    strategy: Strategy,
    *,
    num_seeds: int = 1,
    fitness: Fitness = lifetime_return,
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> Evolution:
    """The search for a socket's function in trainings of ``algo``, a module of `purerl.algos`, in every environment.

    A single environment is trained in as it is, several as their `purerl.envs.union`.
    """
    choose = union(envs) if len(envs) > 1 else lambda task: envs[0]

    def make_trainer(meta_params: PyTree, task: Array) -> Trainer:
        return algo.make_trainer(config, choose(task), **socket.parts(meta_params, config))

    shape = config.num_iterations, strategy.size, len(envs), num_seeds
    live = lifetimes(make_trainer, *shape, fitness=fitness, devices=devices, lanes=lanes)
    trainer = algo.make_trainer(config, envs[0])
    frames = strategy.size * len(envs) * num_seeds * trainer.frames(config.num_iterations)
    used = population.layout(strategy.size * len(envs) * num_seeds, devices, lanes).devices
    return evolution(strategy, socket.init, live, len(envs), num_seeds)._replace(frames=frames, devices=used)


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
    """``search(key) -> Evolved``, to jit: a whole search as one program.

    ``strategy`` is a `Strategy`, or the name of one with ``population`` candidates and ``strategy_options``
    (`strategies.make`); ``options`` are those of `of`. The command line runs the same in chunks that are saved. ::

        search = evolve(sockets.value_loss(), ppo, ppo.Config(total_steps=32768), [envs.make("CartPole-v1")])
        found = jax.jit(search)(jax.random.key(0))
        ppo.make_train(config, env, **sockets.value_loss().parts(found.meta_params, config))
    """
    if isinstance(strategy, str):
        like = jax.eval_shape(socket.init, jax.random.key(0))
        strategy = make_strategy(strategy, population, zeros(like), **(strategy_options or {}))
    found = of(socket, algo, config, envs, strategy, **options)

    def search(key: Key) -> Evolved:
        state, metrics = jax.lax.scan(lambda state, _: found.step(state), found.init(key), None, generations)
        return Evolved(found.mean(state), state, metrics)

    return search


def _summary(found: Array) -> Metrics:
    alive = jnp.isfinite(found)
    total = jnp.sum(jnp.where(alive, found, 0.0))
    each = jnp.mean(found, axis=(1, 2))
    sound = jnp.isfinite(each)
    some = jnp.any(sound)
    return {
        "fitness": total / jnp.sum(alive),
        "fitness_best": jnp.where(some, jnp.max(jnp.where(sound, each, -jnp.inf)), jnp.nan),
        "fitness_worst": jnp.where(some, jnp.min(jnp.where(sound, each, jnp.inf)), jnp.nan),
        "alive": jnp.mean(alive),
    }
