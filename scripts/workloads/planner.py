"""AlphaZero's searches beside mctx alone on the same trees, or its games beside pgx's example, in simulations a second.

    python scripts/benchmark.py search --games 1 64 --simulations 32
    python scripts/benchmark.py search --env pgx/connect_four --games 64 --peer pgx=CHECKOUT --peer-python PYTHON

Alone: both sides search from the same positions, with a network that says nothing, and must have visited the same
actions. mctx's side steps the environment, changes signs, and makes ends of games absorb, and no more; so the ratio is
what purerl's bundle costs beside it, such as drawing chance anew.

Beside pgx's example (``examples/alphazero`` of a checkout; measured with commit 079b2d7) both sides play ``--moves``
moves of each game against themselves by the example's own network, of ``--channels`` and ``--blocks``. What is not the
same: purerl's rows are recorded for both agents of a game, with metrics of their episodes. PYTHON needs purerl, pgx,
dm-haiku, omegaconf and pydantic.
"""

import argparse
import sys
import types
from pathlib import Path
from typing import Any

from workloads import sides, turns

OPENING = 3
"""Random moves before a position that is searched."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--env", default="TicTacToe-v0", help="game of two in turn (default: TicTacToe-v0)")
    parser.add_argument("--games", type=int, nargs="+", default=[64], help="games side by side (default: 64)")
    parser.add_argument("--simulations", type=int, default=32, help="of each search (default: 32)")
    parser.add_argument("--moves", type=int, default=32, help="searches of a game in a run (default: 32)")
    parser.add_argument("--peer", default="mctx", help="mctx, or pgx=CHECKOUT (default: mctx)")
    parser.add_argument("--channels", type=int, default=32, help="of the example's network (default: 32)")
    parser.add_argument("--blocks", type=int, default=2, help="of the example's network (default: 2)")


def problem(args: argparse.Namespace) -> str | None:
    """Why the arguments will not do."""
    name, _, checkout = args.peer.partition("=")
    if name not in ("mctx", "pgx") or (name == "mctx") == bool(checkout):
        return f"--peer {args.peer}: must be mctx or pgx=CHECKOUT"
    if name == "pgx" and not args.env.startswith("pgx/"):
        return f"--env {args.env}: must be a game of pgx beside its example"
    if name == "pgx" and not Path(checkout, "examples", "alphazero", "train.py").is_file():
        return f"--peer {args.peer}: has no examples/alphazero/train.py"
    return None


def positions(env: Any, games: int) -> Any:
    """Positions after a few random moves, the same for every side."""
    import jax

    from purerl.loops.evaluation import playing, random_player

    begin, move = playing(jax.random.key(0), env, random_player(env), games)
    here = begin()
    for time in range(OPENING):
        here = move(here, time)[0]
    return here


def searching(env: Any, request: dict[str, Any]) -> Any:
    """A function of a situation and a key that gives the visits ``[N, A]`` of purerl's search, by an empty network."""
    import jax.numpy as jnp

    from purerl import alphazero
    from purerl.networks.heads import shared_actor_critic

    def nothing(params, obs):
        rows = env.legal(obs).shape
        return jnp.zeros(rows), jnp.zeros(rows[:-1])

    config = alphazero.Config(simulations=request["simulations"], gamma=1.0)
    learner = alphazero.make_learner(config, env, network=shared_actor_critic(lambda key, obs: {}, nothing))
    return lambda here, key: learner.search(learner.policy(learner.init(key, here.obs)), here, key, False)[2].visits


def alone(env: Any, request: dict[str, Any]) -> Any:
    """The same by mctx and no more than it needs to know of a game."""
    import jax
    import jax.numpy as jnp
    import mctx

    from purerl import alphazero
    from purerl.formulas.exploration import masked
    from purerl.learners.parts.planning import keys_as_words

    config = alphazero.Config()

    def seen(obs):
        """The mover's number and its legal actions, of the observations ``[N, 2, ...]`` of both."""
        mover = jnp.argmax(env.acting(obs), axis=-1)
        return mover, jnp.take_along_axis(env.legal(obs), mover[:, None, None], axis=1)[:, 0]

    in_words, of_words = keys_as_words(jax.eval_shape(lambda: positions(env, 1).env_state))

    def recurrent(params, key, action, before):
        words, mover, over = before
        noise = env.noise(jax.random.wrap_key_data(key), (len(action),))
        env_state, step = jax.vmap(env.step)(noise, of_words(words), jnp.stack([action, action], axis=1))
        following, legal = seen(step.next_obs)
        own = lambda x: jnp.take_along_axis(x, mover[:, None], axis=1)[:, 0]
        ended = own(step.terminated) | own(step.truncated)
        out = mctx.RecurrentFnOutput(
            reward=jnp.where(over, 0.0, own(step.reward)),
            discount=jnp.where(over | ended, 0.0, jnp.where(following == mover, 1.0, -1.0)),
            prior_logits=masked(jnp.zeros(legal.shape), legal),
            value=jnp.zeros(len(action)),
        )
        return out, (in_words(env_state), following, over | ended)

    def search(here, key):
        both = jax.tree.map(lambda x: x.reshape(-1, 2, *x.shape[1:]), here.obs)
        mover, legal = seen(both)
        root = mctx.RootFnOutput(
            prior_logits=masked(jnp.zeros(legal.shape), legal),
            value=jnp.zeros(len(mover)),
            embedding=(in_words(here.env_state), mover, jnp.zeros(len(mover), bool)),
        )
        scaled = lambda *given: mctx.qtransform_completed_by_mix_value(
            *given, value_scale=config.value_scale, rescale_values=config.rescale_values
        )
        found = mctx.gumbel_muzero_policy(
            (),
            jax.random.key_data(key),
            root,
            recurrent,
            request["simulations"],
            invalid_actions=~legal,
            max_num_considered_actions=config.considered_actions,
            qtransform=scaled,
            gumbel_scale=0.0,
        )
        return found.search_tree.summary().visit_counts

    return search


def searches(request: dict[str, Any]) -> turns.Job:
    """``moves`` searches from the same positions."""
    import jax
    import jax.numpy as jnp

    from purerl import envs

    env = envs.make(request["env"])
    search = (searching if request["side"] == "purerl" else alone)(env, request)
    here = jax.jit(lambda: positions(env, request["games"]))()

    def run(here, keys):
        return jax.lax.scan(lambda total, key: (total, search(here, key)), (), keys)[1]

    keys = lambda seed: jax.random.split(jax.random.key(seed), request["moves"])

    def tally(visits):
        total = jnp.sum(visits * (1 + jnp.arange(visits.shape[-1])), axis=(0, 2))
        if not bool(jnp.all(jnp.sum(visits, axis=-1) == request["simulations"])):
            raise SystemExit(f"{request['side']} did not make {request['simulations']} simulations")
        return {"visited": [int(x) for x in total]}

    lower = lambda: jax.jit(run).lower(here, keys(0))
    return turns.Job(lower, lambda program, seed: program(here, keys(seed)), tally=tally)


def example(request: dict[str, Any]) -> Any:
    """pgx's example as a module: without what it logs to, and the opponents that it would download."""
    import pgx

    pgx.make_baseline_model = lambda name: None
    sys.modules["wandb"] = types.ModuleType("wandb")
    settings = {
        "env_id": request["env"].removeprefix("pgx/"),
        "num_channels": request["channels"],
        "num_layers": request["blocks"],
        "selfplay_batch_size": request["games"],
        "num_simulations": request["simulations"],
        "max_num_steps": request["moves"],
    }
    given, sys.argv = sys.argv, ["train.py", *(f"{name}={value}" for name, value in settings.items())]
    sys.path.insert(0, str(Path(request["checkout"], "examples", "alphazero")))
    try:
        import train

        return train
    finally:
        sys.argv = given


def self_play(request: dict[str, Any]) -> turns.Job:
    """``moves`` moves of each game, each after a search by the example's network."""
    import jax

    module = example(request)
    shown = jax.vmap(module.env.init)(jax.random.split(jax.random.PRNGKey(0), 2)).observation
    if request["side"] == "pgx":
        model, play = module.forward.init(jax.random.PRNGKey(0), shown), module.selfplay.__wrapped__
        key = jax.random.PRNGKey
        return turns.Job(lambda: jax.jit(play).lower(model, key(0)), lambda program, seed: program(model, key(seed)))

    from purerl import alphazero, envs
    from purerl.networks.heads import shared_actor_critic

    def apply(params, obs):
        lead = obs["acting"].shape
        flat = obs["obs"].reshape(-1, *shown.shape[1:])
        logits, value = module.forward.apply(*params, flat, is_eval=True)[0]
        return logits.reshape(*lead, -1), value.reshape(lead)

    env = envs.make(request["env"])
    network = shared_actor_critic(lambda key, obs: module.forward.init(jax.random.key_data(key), shown), apply)
    frames = request["games"] * request["moves"]
    config = alphazero.Config(
        total_steps=4 * frames,
        num_envs=request["games"],
        num_steps=request["moves"],
        capacity=2 * frames,
        warmup_steps=frames,
        simulations=request["simulations"],
        n_step=min(32, request["moves"] - 1),
        gamma=1.0,
    )
    trainer = alphazero.make_trainer(config, env, network=network)
    state = jax.jit(trainer.begin or trainer.init)(jax.random.key(0))
    given = trainer.learner.behaviour(state.learner), state.actors
    key = jax.random.key
    return turns.Job(
        lambda: jax.jit(trainer.collect).lower(*given, key(0)), lambda program, seed: program(*given, key(seed))
    )


def job(request: dict[str, Any]) -> turns.Job:
    """Searches, or games beside an example."""
    return (self_play if request["checkout"] else searches)(request)


def run(args: argparse.Namespace, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures and prints every number of games."""
    peer, _, checkout = args.peer.partition("=")
    names = "env", "simulations", "moves", "channels", "blocks"
    given = {**request, **{name: getattr(args, name) for name in names}, "checkout": checkout}
    python = args.peer_python if checkout else sys.executable
    return [measured(args, peer, python, {**given, "games": games}) for games in args.games]


def measured(args: argparse.Namespace, peer: str, python: str, request: dict[str, Any]) -> dict[str, Any]:
    """The figures of one number of games, printed and as a row."""
    taking = [sides.side(name, python, {**request, "side": name}) for name in ("purerl", peer)]
    results = turns.measure(taking, args.rounds, args.processes)
    visited = [[run.get("visited") for process in results[side.name] for run in process["rounds"]] for side in taking]
    if visited[0] != visited[1]:
        raise SystemExit(f"the sides did not search the same trees: {visited}")
    games = request["games"]
    simulations = games * request["moves"] * request["simulations"]
    row = {"games": games, **turns.speeds(results, simulations, f"{games} games, ", "simulations")}
    row["ratio"] = turns.ratio(results["purerl"], results[peer])
    print(f"{games} games, {peer} / purerl: {turns.show(row['ratio'])}", flush=True)
    return row
