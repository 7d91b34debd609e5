"""JaxUED's script of replayed levels (examples/maze_plr.py in its repository), and what its policy solves.

    NPROC=1 THEIR-PYTHON scripts/workloads/jaxued_mazes.py CHECKOUT [--frames F] [--seed S] [--mazes N] [--updates U]

Trains as `curricula` does with ``robust-plr``: half of the iterations replay levels, an LSTM of 64 units, a learning
rate of 1e-3; all else are its own settings. Every U updates it prints the share of attempts that solve the mazes that
papers report on, ten in each; and in the end the shares of N new mazes, whole thousands, drawn as its training draws
them, that the most likely actions and sampled ones solve, with the means over the worst 1, 5 and 10 % of mazes.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jaxued.environments import Maze
from jaxued.environments.maze import make_level_generator

UNITS, ATTEMPTS, AT_ONCE = 64, 4, 1000


class Likeliest:
    """A distribution whose samples are its mode."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def sample(self, seed: Any) -> Any:
        """Returns the mode."""
        return self.given.mode()


def solved(script: dict[str, Any], state: Any, mazes: int, attempts: int, sample: bool) -> np.ndarray:
    """Returns the share of attempts in each new maze that reach the goal ``[mazes]``."""
    env = Maze(max_height=13, max_width=13, agent_view_size=5, normalize_obs=True)
    draw, params = make_level_generator(13, 13, 25), env.default_params

    def likeliest(*given: Any) -> tuple[Any, Likeliest, Any]:
        hidden, pi, value = state.apply_fn(*given)
        return hidden, Likeliest(pi), value

    @jax.jit
    def play(levels: Any, key: Any) -> Any:
        key_reset, key_play = jax.random.split(key)
        begin = jax.vmap(env.reset_to_level, (0, 0, None))(jax.random.split(key_reset, AT_ONCE), levels, params)
        carry = script["ActorCritic"].initialize_carry((AT_ONCE,))
        player = state if sample else state.replace(apply_fn=likeliest)
        most = params.max_steps_in_episode
        _, rewards, lengths = script["evaluate_rnn"](key_play, env, params, player, carry, *begin, most)
        return (rewards * (np.arange(most)[:, None] < lengths)).sum(axis=0) > 0

    levels = jax.vmap(draw)(jax.random.split(jax.random.key(7), mazes))
    parts = [jax.tree.map(lambda x, at=at: x[at : at + AT_ONCE], levels) for at in range(0, mazes, AT_ONCE)]
    keys = jax.random.split(jax.random.key(8), (attempts, len(parts)))
    played = [[np.asarray(play(part, key)) for part, key in zip(parts, each, strict=True)] for each in keys]
    return np.mean([np.concatenate(each) for each in played], axis=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--frames", type=int, default=50_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mazes", type=int, default=10_000)
    parser.add_argument("--updates", type=int, default=359)
    args = parser.parse_args()

    cell = nn.OptimizedLSTMCell
    nn.OptimizedLSTMCell = lambda features: cell(UNITS)
    path = str(args.checkout / "examples" / "maze_plr.py")
    sys.path.insert(0, str(Path(__file__).parent / "quiet"))
    sys.argv = [path, "--checkpoint_save_interval", "0", "--replay_prob", "0.5", "--lr", "1e-3"]
    sys.argv += ["--seed", str(args.seed), "--eval_freq", str(args.updates)]
    sys.argv += ["--num_updates", str(args.frames // (32 * 256) // args.updates * args.updates)]
    source = Path(path).read_text().replace("\n    main(config", "\n    trained = main(config")
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(source, script)
    for sample in (False, True):
        shares = np.sort(solved(script, script["trained"], args.mazes, ATTEMPTS if sample else 1, sample))
        worst = ", ".join(f"worst {part} {shares[: round(part * args.mazes)].mean():.3f}" for part in (0.01, 0.05, 0.1))
        print(f"{args.mazes} new mazes, {'sampled' if sample else 'most likely'}: {shares.mean():.4f}, {worst}")
