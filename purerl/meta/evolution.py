"""Evolution of learned functions: every generation trains agents from scratch, each with one candidate function.

Lu et al. 2022 (arXiv 2210.05639, section 4.1) found LPO in this way, and PureJaxRL a value loss. A search is a bundle
with ``init`` and ``step`` like a `Trainer`, one step per generation, so the same host code runs both in chunks.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from purerl import loops, population, trees
from purerl.envs.union import union
from purerl.learned.sockets import Socket
from purerl.loops.evaluation import evaluate
from purerl.meta.strategies import Strategy, ranks
from purerl.meta.strategies import make as make_strategy
from purerl.trees import zeros
from purerl.types import Array, Env, Key, Metrics, PyTree, Trainer

Fitness = Callable[[Metrics], Array]
"""Maps the metrics ``[iterations]`` of one training to a scalar to be maximised."""
TRIAL, TRIAL_EPISODES = 2**31 + 3, 64
"""Folded into the key of a training for its trial, so that a trial touches no key of the training; and the episodes of
a trial, which are played side by side (arXiv 2211.11030: 64)."""


class Search(NamedTuple):
    """The whole state of a search. ``generation`` is the number of finished generations (int32)."""

    strategy: PyTree
    generation: Array
    key: Key


class Evolution(NamedTuple):
    """A search as pure functions: ``init(key)``, which consumes its key, and ``step(state)``, one generation.

    ``mean(state)`` returns the current meta-parameters. ``frames`` is the number of environment steps of a generation,
    over all its trainings (a Python integer; 0 if unknown); ``devices`` are those that it runs on.
    """

    init: Callable[[Key], PyTree]
    step: Callable[[PyTree], tuple[PyTree, Metrics]]
    mean: Callable[[PyTree], PyTree]
    frames: int = 0
    devices: tuple[jax.Device, ...] = ()


def lifetime_return(metrics: Metrics) -> Array:
    """The mean over a training's metrics ``[iterations]`` of the most recent ``episode_return``, a scalar.

    An iteration in which no episode ended repeats the return of the one before it, so that long episodes do not count
    for less. Iterations before the first end of an episode do not count; nan if no episode ever ended. It corresponds
    to PureJaxRL's mean of ``returned_episode_returns``, per iteration in place of per step.
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

    With a ``trial`` it is the mean return of the trained policy in the environment ``trial(**given)``, where it always
    takes its most likely action and learns no more. It is -inf if the training died or its fitness is nan.
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


LANES = 8
"""Trainings that a CPU core computes at once. A search promises its own bits, not those of lone trainings, so that it
can take the number that was fastest for small networks."""


def placed(size: int, devices: Sequence[jax.Device] | None = None, lanes: int | None = None) -> population.Layout:
    """The layout of ``size`` trainings of a search on ``devices`` (default: all), each with ``lanes`` at once (default:
    `LANES` on CPU, all elsewhere)."""
    on_cpu = (devices or jax.devices())[0].platform == "cpu"
    return population.layout(size, devices, lanes or (LANES if on_cpu else None))


def lifetimes(
    make_trainer: Callable[..., Trainer],
    num_iterations: int,
    num_candidates: int,
    num_tasks: int,
    num_seeds: int,
    *,
    fitness: Fitness = lifetime_return,
    trial: Callable[..., Env] | None = None,
    devices: Sequence[jax.Device] | None = None,
    lanes: int | None = None,
) -> Callable[[PyTree, Key], Array]:
    """Returns ``live(candidates [P], keys [S]) -> fitness [P, tasks, S]``, which runs whole trainings on all devices.

    Every candidate trains in every task ``0 .. tasks - 1`` with every key (common random numbers).

    - ``make_trainer(meta_params=..., task=...)``: the `Trainer` of a candidate; ``task`` is int32 and traced.
    - ``num_iterations``: iterations of a training.
    - ``num_candidates``: ``P``.
    - ``num_tasks``: number of tasks.
    - ``num_seeds``: ``S``.
    - ``fitness, trial``: as for `lifetime`.
    - ``devices, lanes``: as for `placed`.
    """
    shape = num_candidates, num_tasks, num_seeds
    candidate, task, seed = (axis.reshape(-1) for axis in jnp.indices(shape, dtype=jnp.int32))
    live_all = lives(make_trainer, num_iterations, candidate.size, fitness, trial, devices, lanes)

    def run(candidates: PyTree, keys: Key) -> Array:
        given = {"meta_params": trees.take(candidates, candidate), "task": task}
        return live_all(given, keys[seed]).reshape(shape)

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
    """Returns ``live(given [N], keys [N]) -> fitness [N]``, which runs ``size`` whole trainings on all devices, each
    with what it is given and a key of its own. Arguments are as for `lifetimes`."""
    live, layout = lifetime(make_trainer, num_iterations, fitness, trial), placed(size, devices, lanes)
    live_all = population.spread(lambda member, _: ((), live(member.given, member.keys)), layout)

    def run(given: PyTree, keys: Key) -> Array:
        members = trees.fill(population.Members(given, keys), layout.size)
        found = live_all(members, ())[1]
        if len(layout.devices) > 1:  # what follows is computed by each device in full, so that it is the same for any
            found = jax.lax.with_sharding_constraint(found, NamedSharding(layout.mesh, PartitionSpec()))
        return found[:size]

    return run


def evolution(
    strategy: Strategy, mean: Callable[[Key], PyTree], live: Callable[[PyTree, Key], Array], num_tasks: int, seeds: int
) -> Evolution:
    """A search for the meta-parameters whose trainings have the highest fitness.

    A candidate's fitness is its `scores`, computed from means over seeds. Metrics of a generation: ``fitness``, the
    mean over all trainings with finite fitness; ``fitness_best`` and ``fitness_worst`` over candidates whose trainings
    all have one; and ``alive``, the fraction of trainings that have one.

    - ``strategy``: the evolution strategy.
    - ``mean(key)``: the initial meta-parameters.
    - ``live``: as returned by `lifetimes`.
    - ``num_tasks``: number of tasks.
    - ``seeds``: number of trainings of a candidate in each task.
    """

    def init(key: Key) -> Search:
        key, key_mean, key_strategy = jax.random.split(key, 3)
        return Search(strategy.init(key_strategy, mean(key_mean)), jnp.zeros((), jnp.int32), key)

    def step(state: Search) -> tuple[Search, Metrics]:
        key, key_ask, key_tell, key_live = jax.random.split(state.key, 4)
        candidates, asked = strategy.ask(key_ask, state.strategy)
        fitness = live(candidates, jax.random.split(key_live, seeds))  # [P, tasks, S]
        updated = strategy.tell(key_tell, candidates, scores(jnp.mean(fitness, axis=2)), asked)
        return Search(updated, state.generation + 1, key), _summary(fitness)

    return Evolution(init, step, lambda state: strategy.mean(state.strategy))


def scores(fitness: Array) -> Array:
    """One score ``[P]`` per candidate from its fitness in each task ``[P, tasks]``.

    With one task it is the fitness itself, with several the mean rank (`strategies.ranks`). A candidate with a
    non-finite fitness ranks last in that task, and scores -inf if it has no finite one in any. A task in which no
    candidate has a finite fitness does not count.
    """
    if fitness.shape[1] == 1:
        return fitness[:, 0]
    some = jnp.any(jnp.isfinite(fitness), axis=0)
    placed = jax.vmap(ranks, in_axes=1, out_axes=1)(fitness)
    mean = jnp.sum(jnp.where(some[None], placed, 0.0), axis=1) / jnp.sum(some)
    return jnp.where(jnp.any(jnp.isfinite(fitness), axis=1), mean, -jnp.inf)


class Evolved(NamedTuple):
    """The result of a whole search: the final meta-parameters, the final state, and metrics ``[generations]``."""

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
    """A search for the function of a socket, by evolution.

    - ``socket``: what is learned.
    - ``algo``: an algorithm of `purerl.algos`.
    - ``config``: its Config.
    - ``envs``: the environments, one per task; several are trained in through their `purerl.envs.union`.
    - ``strategy``: the evolution strategy.
    - ``num_seeds``: trainings of a candidate in each environment.
    - ``fitness``: of the metrics of a training, unless the socket has a trial; times the socket's sign.
    - ``devices, lanes``: as for `placed`.
    """
    choose = union(envs) if len(envs) > 1 else lambda task: envs[0]

    def make_trainer(meta_params: PyTree, task: Array) -> Trainer:
        env = socket.env(meta_params, choose(task))
        return algo.make_trainer(config, env, **socket.parts(meta_params, config))

    shape, judged = (config.num_iterations, strategy.size, len(envs), num_seeds), judge(socket, choose, fitness)
    live = lifetimes(make_trainer, *shape, **judged, devices=devices, lanes=lanes)
    trainer = algo.make_trainer(config, envs[0])
    frames = strategy.size * len(envs) * num_seeds * trainer.frames(config.num_iterations)
    used = placed(strategy.size * len(envs) * num_seeds, devices, lanes).devices
    return evolution(strategy, socket.init, live, len(envs), num_seeds)._replace(frames=frames, devices=used)


def judge(socket: Socket, choose: Callable[[Any], Env], fitness: Fitness = lifetime_return) -> dict[str, Any]:
    """By what the trainings of a socket are judged: the ``fitness`` and ``trial`` of `lifetime`.

    ``choose(task)`` is the environment of a task, and ``fitness`` is of the metrics of a training.
    """
    signed = fitness if socket.sign == 1 else lambda metrics: socket.sign * fitness(metrics)
    if (trial := socket.trial) is None:
        return {"fitness": signed}
    return {"fitness": signed, "trial": lambda meta_params, task: trial(meta_params, choose(task))}


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

    - ``socket``: what is learned.
    - ``algo``: an algorithm of `purerl.algos`.
    - ``config``: its Config.
    - ``envs``: the environments to train in.
    - ``strategy``: a `Strategy`, or the name of one (`strategies.make`).
    - ``population``: number of candidates of a strategy given by name.
    - ``generations``: number of generations.
    - ``strategy_options``: further arguments of `strategies.make`.
    - ``options``: further arguments of `of`.

    The command line runs the same search in chunks, and saves a checkpoint after each. ::

        search = evolve(sockets.value_loss(), ppo, ppo.Config(total_steps=32768), [envs.make("CartPole-v1")])
        result = jax.jit(search)(jax.random.key(0))
        ppo.make_train(config, env, **sockets.value_loss().parts(result.meta_params, config))
    """
    if isinstance(strategy, str):
        like = jax.eval_shape(socket.init, jax.random.key(0))
        strategy = make_strategy(strategy, population, zeros(like), **(strategy_options or {}))
    bundle = of(socket, algo, config, envs, strategy, **options)

    def search(key: Key) -> Evolved:
        state, metrics = jax.lax.scan(lambda state, _: bundle.step(state), bundle.init(key), None, generations)
        return Evolved(bundle.mean(state), state, metrics)

    return search


def _summary(fitness: Array) -> Metrics:
    """The metrics of a generation from the fitness ``[P, tasks, S]`` of its trainings."""
    alive = jnp.isfinite(fitness)
    total = jnp.sum(jnp.where(alive, fitness, 0.0))
    each = jnp.mean(fitness, axis=(1, 2))
    sound = jnp.isfinite(each)
    some = jnp.any(sound)
    return {
        "fitness": total / jnp.sum(alive),
        "fitness_best": jnp.where(some, jnp.max(jnp.where(sound, each, -jnp.inf)), jnp.nan),
        "fitness_worst": jnp.where(some, jnp.min(jnp.where(sound, each, jnp.inf)), jnp.nan),
        "alive": jnp.mean(alive),
    }
