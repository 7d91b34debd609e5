"""DQN beside Rejax 0.1.3 (which needs gymnax 0.0.9): the same frames, updates, networks and buffers, no evaluation.

The settings are those that Rejax publishes for the environment, but for what only one of the two has. Both have double
Q-learning, a target network copied whole, no dueling streams, and on MinAtar the network of its authors (Young & Tian
2019); the warm-up is short, so that few frames come without their updates. Rejax steps every environment once and then
learns. purerl may collect K steps first (``--num-steps``) and then takes K times as many updates: equally many a frame.

What is not the same: Rejax draws a batch without replacement and clips each element of a gradient; purerl draws with
replacement, clips the norm, and has a Huber loss whose line begins beyond any error.

Beside them stands a floor, the arithmetic of purerl's update (`planning.flops`) at the rate of one core in products of
the widest dense layer's shape, and how much longer a core works for each of purerl's updates, all else included.
"""

import argparse
import sys
from typing import Any, NamedTuple

from workloads import sides, turns


class Setting(NamedTuple):
    """What both sides train. ``updates_per_step`` follow a step of all environments; ``target_frames`` lie between two
    copies to the target network; ``widest`` are inputs and outputs of the widest dense layer."""

    environment: str
    num_envs: int
    batch_size: int
    updates_per_step: int
    capacity: int
    target_frames: int
    learning_rate: float
    gamma: float
    exploration_fraction: float
    hidden_sizes: tuple[int, ...]
    activation: str
    widest: tuple[int, int]
    total_steps: int


SETTINGS = {
    "dqn-cartpole": Setting(
        "CartPole-v1", 10, 100, 5, 50_000, 200, 1e-3, 0.99, 0.5, (64, 64), "silu", (64, 64), 100_000
    ),
    "dqn-minatar": Setting(
        "Breakout-MinAtar", 1, 100, 1, 100_000, 1000, 5e-4, 0.99, 0.5, (128,), "relu", (1024, 128), 10_000
    ),
}
"""After configs/gymnax/cartpole.yaml and benchmark/breakout_1m.yaml of Rejax's repository."""
WARMUP_STEPS = 1_000
MAX_GRAD_NORM = 10.0
EPSILON = 1.0, 0.05
CHANNELS = 16
FLOOR_FLOPS = 2e10
"""Arithmetic of the products that the rate of a core is read off."""


class Counts(NamedTuple):
    """What a training of one agent really takes, and ``target_period`` in updates."""

    warmup: int
    capacity: int
    frames: int
    updates: int
    target_period: int


def counts(setting: Setting, total_steps: int, num_steps: int) -> Counts:
    """Whole iterations of ``num_steps`` steps: warm-up and capacity are rounded up to them, the frames down."""
    batch = setting.num_envs * num_steps
    warmup, capacity = (-(-count // batch) * batch for count in (WARMUP_STEPS, setting.capacity))
    iterations = (total_steps - warmup) // batch
    period = setting.target_frames // setting.num_envs * setting.updates_per_step
    return Counts(
        warmup, capacity, warmup + iterations * batch, iterations * num_steps * setting.updates_per_step, period
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    steps = ", ".join(f"{setting.total_steps} for {name}" for name, setting in SETTINGS.items())
    parser.add_argument("--agents", type=int, nargs="+", default=[1], help="agents trained at once (default: 1)")
    parser.add_argument("--total-steps", type=int, help=f"frames of an agent (default: {steps})")
    parser.add_argument("--num-steps", type=int, default=8, help="K, purerl's steps between updates (default: 8)")
    parser.add_argument("--lanes", type=int, default=0, help="purerl's agents side by side (default: its own choice)")
    parser.add_argument("--peer", choices=["rejax"])


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    setting = SETTINGS[args.workload]
    total = counts(setting, args.total_steps or setting.total_steps, args.num_steps)
    if total.updates < 1:
        least = total.warmup + setting.num_envs * args.num_steps
        return f"--total-steps {args.total_steps}: must be at least the warm-up and one iteration, {least}"
    return None


def words(setting: Setting, total: Counts, num_steps: int, agents: int = 1, lanes: int = 0) -> str:
    """What follows ``purerl train``: the setting as purerl has it."""
    options = {
        "env": setting.environment,
        "num_seeds": agents,
        "lanes": lanes,
        "total_steps": total.frames,
        "num_envs": setting.num_envs,
        "num_steps": num_steps,
        "num_updates": num_steps * setting.updates_per_step,
        "batch_size": setting.batch_size,
        "capacity": total.capacity,
        "warmup_steps": total.warmup,
        "target_period": total.target_period,
        "learning_rate": setting.learning_rate,
        "learning_rate_decay": 0.0,
        "gamma": setting.gamma,
        "n_step": 3,
        "epsilon_start": EPSILON[0],
        "epsilon_end": EPSILON[1],
        "exploration_fraction": setting.exploration_fraction,
        "max_grad_norm": MAX_GRAD_NORM,
        "huber_delta": 1e6,
        "hidden_sizes": " ".join(map(str, setting.hidden_sizes)),
        "activation": setting.activation,
    }
    return " ".join(["dqn", *(f"--{name.replace('_', '-')} {value}" for name, value in options.items())])


def convolutional():
    """MinAtar's network, as Rejax's agents are made: ``[N, H, W, C] -> [N, A]``, and ``take`` of given actions."""
    import flax.linen as nn
    import jax.numpy as jnp

    class QNetwork(nn.Module):
        action_dim: int
        hidden_size: int
        activation: Any

        @nn.compact
        def __call__(self, obs):
            x = self.activation(nn.Conv(CHANNELS, (3, 3), padding="VALID")(obs))
            x = self.activation(nn.Dense(self.hidden_size)(x.reshape(x.shape[0], -1)))
            return nn.Dense(self.action_dim)(x)

        def take(self, obs, action):
            return jnp.take_along_axis(self(obs), action[:, None], axis=1)[:, 0]

    return QNetwork


def rejax_train(setting: Setting, total: Counts):
    """Rejax's own training of one agent, evaluated by nothing: its frames, updates and parameters."""
    import flax.linen as nn
    from rejax import DQN
    from rejax.networks import EpsilonGreedyPolicy

    algo = DQN.create(
        env=setting.environment,
        agent="QNetwork",
        agent_kwargs={"activation": setting.activation},
        num_envs=setting.num_envs,
        num_epochs=setting.updates_per_step,
        batch_size=setting.batch_size,
        buffer_size=total.capacity,
        fill_buffer=total.warmup - setting.num_envs,
        target_update_freq=setting.target_frames,
        polyak=0.0,
        total_timesteps=total.frames,
        eval_freq=total.frames,
        skip_initial_evaluation=True,
        learning_rate=setting.learning_rate,
        gamma=setting.gamma,
        eps_start=EPSILON[0],
        eps_end=EPSILON[1],
        exploration_fraction=setting.exploration_fraction,
        max_grad_norm=MAX_GRAD_NORM,
        ddqn=True,
    ).replace(eval_callback=lambda algo, state, key: ())
    if len(algo.obs_space.shape) == 3:
        activation, (hidden_size,) = getattr(nn, setting.activation), setting.hidden_sizes
        algo = algo.replace(agent=EpsilonGreedyPolicy(convolutional())(algo.action_dim, hidden_size, activation))
    elif (algo.agent.hidden_layer_sizes, algo.agent.action_dim) != (setting.hidden_sizes, algo.action_dim):
        raise SystemExit(f"rejax's network is {algo.agent}, not {setting.hidden_sizes}")

    def outcome(key):
        state, _ = algo.train(key)
        return state.global_step, state.q_ts.step, state.q_ts.params

    return outcome


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training of all agents, or the products of the floor."""
    import jax
    import numpy as np

    setting, agents = SETTINGS[request["workload"]], request["agents"]
    total = counts(setting, request["total_steps"], request["num_steps"])
    if request["side"] == "floor":
        return floor(setting, total, request["num_steps"])
    if request["side"] == "purerl":
        return took(sides.training(request), agents * total.frames, total.updates)
    train, lone = rejax_train(setting, total), agents == 1
    train = train if lone else jax.vmap(train)

    def keys(seed):
        return jax.random.key(seed) if lone else jax.random.split(jax.random.key(seed), agents)

    def tally(result):
        results = [np.unique(count).tolist() for count in result[:2]]
        if results != [[total.frames], [total.updates]]:
            raise SystemExit(f"{request['side']} took {results} frames and updates, not {total}")
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(result[2])):
            raise SystemExit(f"{request['side']} diverged")
        return {}

    return turns.Job(lambda: jax.jit(train).lower(keys(0)), lambda program, seed: program(keys(seed)), tally=tally)


def took(training: turns.Job, frames: int, updates: int) -> turns.Job:
    """A training of purerl's that fails unless it took so many frames of all agents, and updates of each."""

    def check(told: dict[str, Any]) -> None:
        if (training.facts["frames"], told["updates"]) != (frames, updates):
            raise SystemExit(f"purerl took {training.facts['frames']} frames and {told['updates']} updates")

    return sides.checked(training, check)


def floor(setting: Setting, total: Counts, num_steps: int) -> turns.Job:
    """Products of a batch through the widest layer and back, one after another, and the arithmetic of an update."""
    import jax
    import numpy as np

    (inputs, outputs), size = setting.widest, setting.batch_size
    trips = round(FLOOR_FLOPS / (4 * size * inputs * outputs))
    forth, back = np.eye(inputs, outputs, dtype=np.float32), np.eye(outputs, inputs, dtype=np.float32)

    def products(x, forth, back):
        return jax.lax.fori_loop(0, trips, lambda _, x: (x @ forth) @ back, x)

    return turns.Job(
        lambda: jax.jit(products).lower(np.ones((size, inputs), np.float32), forth, back),
        lambda program, seed: program(np.full((size, inputs), seed + 1, np.float32), forth, back),
        {"flops": 4 * size * inputs * outputs * trips, "update_flops": update_flops(setting, total, num_steps)},
    )


def update_flops(setting: Setting, total: Counts, num_steps: int) -> float:
    """Arithmetic of one of purerl's updates, without what no result needs."""
    import jax
    from jax.extend.core import jaxpr_as_fun
    from jax.interpreters.partial_eval import dce_jaxpr

    from purerl import dqn, envs, replay
    from purerl.cli import benchmark_worker
    from purerl.learners.parts import from_replay
    from purerl.population import arithmetic

    config = benchmark_worker.read(words(setting, total, num_steps).split()).config
    env = envs.make(setting.environment)
    learner, stored = (
        dqn.make_learner(config, env),
        from_replay.make_replay(config, env, replay.transitions(config.n_step, config.gamma)),
    )
    key = jax.random.key(0)
    state = jax.eval_shape(dqn.make_trainer(config, env).init, key)
    sample = jax.eval_shape(stored.sample, state.replay, key)
    arguments = state.learner, sample, key
    whole = jax.make_jaxpr(learner.update)(*arguments)
    needed, _ = dce_jaxpr(whole.jaxpr, [True] * len(whole.jaxpr.outvars), instantiate=True)
    return arithmetic.flops(jaxpr_as_fun(whole.replace(jaxpr=needed)), *jax.tree.leaves(arguments))


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of agents."""
    setting = SETTINGS[args.workload]
    total_steps = args.total_steps or setting.total_steps
    total = counts(setting, total_steps, args.num_steps)
    print(f"{setting}\nan agent: {total}, K = {args.num_steps}")
    request = {**request, "total_steps": total_steps, "num_steps": args.num_steps}
    return [report(agents, setting, total, measure(args, {**request, "agents": agents})) for agents in args.agents]


def measure(args: argparse.Namespace, request: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Trainings by turns, and the floor's products on one core among them."""
    setting = SETTINGS[args.workload]
    total = counts(setting, request["total_steps"], args.num_steps)
    taking = [
        sides.ours(words(setting, total, args.num_steps, request["agents"], args.lanes), request),
        sides.side("floor", sys.executable, {**request, "side": "floor"}, {"NPROC": "1"}),
    ]
    if args.peer:
        taking.append(sides.side(args.peer, args.peer_python, {**request, "side": args.peer}))
    return turns.measure(taking, args.rounds, args.processes)


def report(agents: int, setting: Setting, total: Counts, results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The figures of one number of agents, printed and as a row."""
    row = {"agents": agents, **setting._asdict(), **total._asdict()}
    products = results.pop("floor")
    for name, processes in results.items():
        frames, updates = (
            turns.spread([agents * count / s for s in turns.seconds(processes)])
            for count in (total.frames, total.updates)
        )
        row[name] = {"frames_per_second": frames, "updates_per_second": updates, **turns.figures(processes)}
        speeds = f"{turns.show(frames, ',.0f')} frames/s, {turns.show(updates, ',.0f')} updates/s"
        print(f"{agents} agents, {name}: {speeds}, {turns.show_figures(row[name])}")
    row["floor"] = floor_figures(agents * total.updates, results["purerl"], products)
    print(f"{agents} agents, floor: {show_floor(row['floor'])}", flush=True)
    for peer in results.keys() - {"purerl"}:
        row["ratio"] = turns.ratio(results[peer], results["purerl"])
        print(f"{agents} agents, ratio: {turns.show(row['ratio'])}", flush=True)
    return row


def floor_figures(updates: int, ours: list[dict[str, Any]], products: list[dict[str, Any]]) -> dict[str, Any]:
    """The rate of a core, the time of an update at that rate, and how often that fits into a core's time for one."""
    flops, update_flops = products[0]["flops"], products[0]["update_flops"]
    within = turns.ratio(ours, products)
    scale = ours[0]["devices"] / updates * flops / update_flops
    return {
        "update_flops": update_flops,
        "gigaflops": turns.spread([flops / s / 1e9 for s in turns.seconds(products)]),
        "microseconds": turns.spread([s * update_flops / flops * 1e6 for s in turns.seconds(products)]),
        "ratio": {name: value * scale for name, value in within.items()},
    }


def show_floor(floor: dict[str, Any]) -> str:
    """What `floor_figures` gives, in words."""
    rate = f"{floor['update_flops'] / 1e6:.3g} MFLOP an update at a core's {turns.show(floor['gigaflops'])} GFLOP/s"
    return f"{rate} are {turns.show(floor['microseconds'])} us; purerl takes {turns.show(floor['ratio'])} times that"
