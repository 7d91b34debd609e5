"""A generation of an evolution on CartPole-v1, of a value loss by default: what it costs beyond its trainings, and
beside PureJaxRL.

PureJaxRL's side is its walkthrough's training with a learned value loss, read from the notebook and vmapped over
candidates, inside one program with evosax's ask and tell: its interpreter needs evosax 0.3 besides.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from workloads import ppo, sides, turns

NUM_ENVS, NUM_STEPS = 4, 64
SIDES = {
    "search": "ask, trainings, fitness and tell",
    "lives": "ask, and the trainings",
    "population": "as many trainings of PPO, with the function that a search begins with folded away",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--candidates", type=int, nargs="+", default=[64], help="of a generation (default: 64)")
    parser.add_argument("--total-steps", type=int, default=16384, help="frames of a training (default: 16384)")
    parser.add_argument("--lanes", type=int, default=0, help="purerl's agents side by side (default: its own choice)")
    parser.add_argument("--socket", default="value-loss", help="what is evolved: value-loss or cheap-talk")
    parser.add_argument("--peer", help="purejaxrl=CHECKOUT")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    name, _, checkout = (args.peer or "").partition("=")
    if args.peer and not (name == "purejaxrl" and notebook(checkout).is_file()):
        return f"--peer {args.peer}: must be purejaxrl=CHECKOUT, a checkout that holds examples/walkthrough.ipynb"
    return None


def notebook(checkout: str) -> Path:
    return Path(checkout, "examples", "walkthrough.ipynb")


def purerl_program(side: str, name: str, candidates: int, total_steps: int, lanes: int):
    """A program of a key on every device."""
    import jax

    from purerl import envs, trees, use_cpu_cores
    from purerl import ppo as algo
    from purerl.learned import sockets
    from purerl.meta import evolution, strategies
    from purerl.population import layouts
    from purerl.trees import zeros

    use_cpu_cores()
    config = algo.Config(total_steps=total_steps, num_envs=NUM_ENVS, num_steps=NUM_STEPS)
    env, socket = envs.make("CartPole-v1"), sockets.make(name, **({"inputs": 4} if name == "cheap-talk" else {}))
    if side == "population":
        silent = zeros(jax.eval_shape(socket.init, jax.random.key(0)))
        train = algo.make_train(config, socket.env(silent, env))
        layout = evolution.placed(candidates, lanes=lanes or None)
        train_all = layouts.spread(lambda key, _: ((), train(key).metrics), layout)
        return lambda key: train_all(trees.fill(jax.random.split(key, candidates), layout.size), ())[1]
    strategy = strategies.make("Open_ES", candidates, zeros(jax.eval_shape(socket.init, jax.random.key(0))))
    search = evolution.make_search(socket, algo, [evolution.Task(env, config)], strategy, lanes=lanes or None)
    if side == "search":
        return lambda key: search.step(search.init(key))

    def make_trainer(meta_params):
        return algo.make_trainer(config, socket.env(meta_params, env), **socket.parts(meta_params, config))

    live = evolution.lifetimes(make_trainer, config.num_iterations, candidates, 1, lanes=lanes or None)

    def lives(key):
        key_mean, key_init, key_ask, key_live = jax.random.split(key, 4)
        result, _ = strategy.ask(key_ask, strategy.init(key_init, socket.init(key_mean)))
        return live(result, jax.random.split(key_live, 1))

    return lives


def purejaxrl_program(checkout: str, candidates: int, total_steps: int):
    """The walkthrough's training with a learned value loss under evosax's Open_ES, as one program of a key."""
    import jax
    import jax.numpy as jnp
    from evosax.algorithms import Open_ES

    ppo.initialise_one_after_another()
    cells = json.loads(notebook(checkout).read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    required = ("class Transition", "class MetaLossNetwork", "def train(meta_params, rng)")
    names: dict[str, Any] = {}
    for text in required:
        exec(next(source for source in sources if text in source), names)
    train = names["make_train"]({**ppo.PUREJAXRL, "NUM_STEPS": NUM_STEPS, "TOTAL_TIMESTEPS": total_steps})
    like = names["MetaLossNetwork"]().init(jax.random.key(0), jnp.zeros((1, 1)))
    strategy = Open_ES(candidates, like)

    def generation(key):
        key_init, key_ask, key_train, key_tell = jax.random.split(key, 4)
        params = strategy.default_params
        result, state = strategy.ask(key_ask, strategy.init(key_init, like, params), params)
        out = jax.vmap(train, in_axes=(0, None))(result, key_train)
        fitness = out["metrics"]["returned_episode_returns"].mean(axis=(1, 2, 3))
        return strategy.tell(key_tell, result, -fitness, state, params)

    return generation


def job(request: dict[str, Any]) -> turns.Job:
    """A generation, or the trainings of one."""
    import jax

    size = request["candidates"], request["total_steps"]
    if request["side"] == "purejaxrl":
        program = purejaxrl_program(request["checkout"], *size)
    else:
        program = purerl_program(request["side"], request["socket"], *size, request["lanes"])
    key = jax.random.key
    return turns.Job(lambda: jax.jit(program).lower(key(0)), lambda compiled, seed: compiled(key(seed)))


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of candidates."""
    rows = []
    length = args.total_steps // (NUM_ENVS * NUM_STEPS) * NUM_ENVS * NUM_STEPS
    for candidates in args.candidates:
        request = {**request, "candidates": candidates, "total_steps": args.total_steps, "lanes": args.lanes}
        request = {**request, "socket": args.socket}
        taking = [sides.side(name, sys.executable, {**request, "side": name}) for name in SIDES]
        if args.peer:
            theirs = {**request, "side": "purejaxrl", "checkout": args.peer.partition("=")[2]}
            taking.append(sides.side("purejaxrl", args.peer_python, theirs))
        results = turns.measure(taking, args.rounds, args.processes)
        speeds = turns.speeds(results, candidates * length, f"{candidates} candidates, ")
        rows.append({"candidates": candidates, **speeds})
        for name in [name for name in results if name != "search"]:
            rows[-1][f"ratio_to_{name}"] = turns.ratio(results[name], results["search"])
            print(f"{candidates} candidates, search / {name}: {turns.show(rows[-1][f'ratio_to_{name}'])}", flush=True)
    return rows
