"""Teams on JaxMARL's MPE simple_spread beside JaxMARL's own scripts: the same frames, updates, networks and buffers.

The settings are those of JaxMARL's scripts (`jaxmarl_scripts`). The script of one team is compiled without the vmap of
its ``main``, which for a lone team would compute both sides of each condition; 16 teams are its vmap. It is kept from
evaluating while it trains, and from batching the QR of its initialisers, which deadlocks on CPU; what it logs goes
nowhere.

What is not the same: purerl bootstraps where the time limit of 26 steps ends an episode; JaxMARL's IPPO takes it for an
end, and its Q-learning leaves the last step of a rollout out, of which purerl reads one step more. purerl's team reward
is the mean over agents, here times their number, which is JaxMARL's sum. Returns are an agent's: of IPPO the mean over
the last tenth of the training, and of Q-learning, with ``--evaluate``, over 512 greedy episodes at its end.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

from workloads import sides, turns
from workloads.jaxmarl_scripts import IPPO, NUM_AGENTS, Q_LEARNING, SCRIPTS, make_train

FRAMES = {"ippo": 200_000, "vdn": 100_000, "qmix": 100_000}
WARMUP = 48
"""Iterations of Q-learning before the first update."""
EVALUATED = 512


def algorithm(workload: str) -> str:
    """The algorithm of ``ALGORITHM-spread``."""
    return workload.partition("-")[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    steps = ", ".join(f"{count} for {name}" for name, count in FRAMES.items())
    parser.add_argument("--teams", type=int, nargs="+", default=[1], help="teams trained at once (default: 1)")
    parser.add_argument("--total-steps", type=int, help=f"frames of a team (default: {steps})")
    parser.add_argument("--lanes", type=int, default=0, help="purerl's teams side by side (default: its own choice)")
    parser.add_argument("--evaluate", action="store_true", help="Q-learning: greedy episodes at the end, timed with it")
    parser.add_argument("--peer", help="jaxmarl=CHECKOUT")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    algo = algorithm(args.workload)
    name, _, checkout = (args.peer or "").partition("=")
    if args.peer and not (name == "jaxmarl" and Path(checkout, SCRIPTS[algo][0]).is_file()):
        return f"--peer {args.peer}: must be jaxmarl=CHECKOUT, a checkout that holds {SCRIPTS[algo][0]}"
    if args.evaluate and algo == "ippo":
        return "--evaluate: JaxMARL's IPPO has no evaluation; what it returned while it trained is told anyway"
    if counts(algo, args.total_steps or FRAMES[algo]).updates < 1:
        return f"--total-steps {args.total_steps}: must hold an iteration after the warm-up"
    return None


class Counts(NamedTuple):
    """What a training of one team really takes."""

    iterations: int
    frames: int
    updates: int


def counts(algo: str, total_steps: int) -> Counts:
    """Whole iterations; epochs of minibatches, or a step of Q-learning, in each."""
    settings = SCRIPTS[algo][1]
    batch = settings["NUM_ENVS"] * settings["NUM_STEPS"]
    iterations = total_steps // batch
    updates = iterations - WARMUP
    if algo == "ippo":
        updates = iterations * IPPO["UPDATE_EPOCHS"] * IPPO["NUM_MINIBATCHES"]
    return Counts(iterations, iterations * batch, updates)


def purerl_program(algo: str, total: Counts, request: dict[str, Any]):
    """A program of keys ``[teams]`` on every device: each team's frames, updates, parameters and return.

    Devices and threads are those of ``purerl train``.
    """
    import jax.numpy as jnp

    from purerl import envs, loops, use_cpu_cores, use_one_thread
    from purerl.benchmarks import trainings
    from purerl.loops.evaluation import evaluate

    if request["agents"] > 1:
        use_cpu_cores()
    else:
        use_one_thread()
    scale = 1.0 if algo == "ippo" else float(NUM_AGENTS)
    env = envs.make(f"jaxmarl/{IPPO['ENV_NAME']}", reward_scale=scale)
    trainer, env = ippo_trainer(total, env) if algo == "ippo" else q_learning_trainer(algo, total, env)
    train = loops.train(trainer, total.iterations - trainer.warmup_steps // trainer.env_steps)

    def outcome(key):
        state, metrics = train(key)
        learner, result = state.learner, metrics["episode_return"][-max(total.iterations // 10, 1) :]
        if request["evaluate"]:
            result = evaluate(key, env, trainer.learner, trainer.learner.policy(learner), EVALUATED).episode_return
        updates = learner.opt_state[-1].updates if algo == "ippo" else learner.updates
        return trainer.frames(state.iteration.low), updates.low, learner.params, jnp.nanmean(result) / scale

    return trainings.of_all(outcome, request["agents"], request["lanes"])


def ippo_trainer(total: Counts, env: Any):
    """Independent PPO with JaxMARL's settings, most of which are `ippo.Config`'s own, and what it sees."""
    from purerl import ippo

    config = ippo.Config(
        total_steps=total.frames, num_envs=IPPO["NUM_ENVS"], num_steps=IPPO["NUM_STEPS"], agent_ids=False
    )
    return ippo.make_trainer(config, env), ippo.view(config, env)


def q_learning_trainer(name: str, total: Counts, env: Any):
    """VDN or QMIX with JaxMARL's settings, network (dense, GRU, linear) and optimiser, and what it sees."""
    import optax

    from purerl import qmix, vdn
    from purerl.learners.parts import many_agents, settings
    from purerl.networks import layers, recurrent

    given, algo, sizes = Q_LEARNING, vdn, {}
    if name == "qmix":
        algo = qmix
        sizes = {"mixer_size": given["MIXER_EMBEDDING_DIM"], "hyper_size": given["MIXER_HYPERNET_HIDDEN_DIM"]}
    width, steps = given["HIDDEN_SIZE"], given["NUM_STEPS"]
    config = algo.Config(
        total_steps=total.frames,
        num_envs=given["NUM_ENVS"],
        num_steps=steps,
        num_updates=1,
        period=steps,
        unroll=steps + 1,
        batch_size=given["BUFFER_BATCH_SIZE"],
        capacity=given["BUFFER_SIZE"] * steps,
        warmup_steps=WARMUP * steps * given["NUM_ENVS"],
        gamma=given["GAMMA"],
        epsilon_start=given["EPS_START"],
        epsilon_end=given["EPS_FINISH"],
        exploration_fraction=given["EPS_DECAY"],
        target_period=given["TARGET_UPDATE_INTERVAL"],
        memory_size=width,
        last_action=False,
        **sizes,
    )
    joint = algo.view(config, env)
    team, (space, inputs) = many_agents.team(joint), many_agents.inputs(joint, ids=True)
    torso = settings.make_torso(config, joint._replace(observation_space=space), (width,))
    alone = recurrent.recurrent(torso, settings.make_memory(config), layers.dense(team.num_actions, 1.0))
    size = optax.linear_schedule(given["LR"], 1e-10, total.iterations)
    optimiser = optax.chain(optax.clip_by_global_norm(given["MAX_GRAD_NORM"]), optax.radam(size))
    network = recurrent.rows(alone, inputs, team.num_agents)
    return algo.make_trainer(config, env, network=network, optimiser=optimiser), joint


def job(request: dict[str, Any]) -> turns.Job:
    """A whole training of all teams."""
    import jax
    import numpy as np

    algo, teams = algorithm(request["workload"]), request["agents"]
    total = counts(algo, request["total_steps"])
    theirs = request["side"] == "jaxmarl"
    lone = theirs and teams == 1
    if theirs:
        last, episodes = max(total.iterations // 10, 1), EVALUATED if request["evaluate"] else 0
        train = make_train(algo, request["checkout"], total.frames, last, episodes)
        train = train if lone else jax.vmap(train)
    else:
        train = purerl_program(algo, total, request)

    def keys(seed):
        key = (jax.random.PRNGKey if theirs else jax.random.key)(seed)
        return key if lone else jax.random.split(key, teams)

    def tally(result):
        results = [np.unique(count).tolist() for count in result[:2]]
        if results != [[total.frames], [total.updates]]:
            raise SystemExit(f"{request['side']} took {results} frames and updates, not {total}")
        if not all(np.isfinite(x).all() for x in jax.tree.leaves(result[2])):
            raise SystemExit(f"{request['side']} diverged")
        return {"episode_return": float(np.mean(result[3]))}

    return turns.Job(lambda: jax.jit(train).lower(keys(0)), lambda program, seed: program(keys(seed)), tally=tally)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of teams."""
    given = {
        **request,
        "total_steps": args.total_steps or FRAMES[algorithm(args.workload)],
        "lanes": args.lanes,
        "evaluate": args.evaluate,
        "checkout": (args.peer or "").partition("=")[2],
    }
    return [measured(args, {**given, "agents": teams}) for teams in args.teams]


def measured(args: argparse.Namespace, request: dict[str, Any]) -> dict[str, Any]:
    """The figures of one number of teams, printed and as a row."""
    taking = [sides.side("purerl", sys.executable, {**request, "side": "purerl"})]
    if args.peer:
        taking.append(sides.side("jaxmarl", args.peer_python, {**request, "side": "jaxmarl"}))
    results, teams = turns.measure(taking, args.rounds, args.processes), request["agents"]
    total = counts(algorithm(args.workload), request["total_steps"])
    row: dict[str, Any] = {"teams": teams, **total._asdict()}
    for name, processes in results.items():
        frames = turns.spread([teams * total.frames / s for s in turns.seconds(processes)])
        returns = turns.spread([each["episode_return"] for process in processes for each in process["rounds"]])
        row[name] = {"frames_per_second": frames, "episode_return": returns, **turns.figures(processes)}
        speed = f"{turns.show(frames, ',.0f')} frames/s, return {turns.show(returns)}"
        print(f"{teams} teams, {name}: {speed}, {turns.show_figures(row[name])}", flush=True)
    if args.peer:
        row["ratio"] = turns.ratio(results["jaxmarl"], results["purerl"])
        print(f"{teams} teams, ratio: {turns.show(row['ratio'])}", flush=True)
    return row
