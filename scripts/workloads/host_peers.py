"""Trainings by Stable-Baselines3, SBX, Sample Factory 2 and CleanRL's scripts, as their users run them: the frames and
the clock as each goes on.

Only what a peer's interpreter has is imported. These were seen to run on Python 3.11 with torch 2.13.0+cpu:
stable-baselines3 2.9.2 with gymnasium 1.4.0; sbx-rl 0.28.0; sample-factory 2.1.1 with gymnasium 0.29.1; CleanRL at
fe8d8a03 with envpool 0.8.4, gym 0.23.1, gymnasium 0.29.1 and numpy 1.26.4, because its script calls gym's old
interface, and fails with EnvPool 1.2.5.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workloads import turns

Train = Callable[[int, int, str], turns.Stamps]
"""A training of so many frames, with a seed, by a checkout of the peer where its scripts are not installed."""
NUM_STEPS, NUM_EPOCHS, NUM_MINIBATCHES = 128, 4, 4
LANES = {"CartPole-v1": 64, "Pong-v5": 8}
"""Environments that step together."""


def clocked(learner: Any, total: int) -> turns.Stamps:
    """Trains a learner of Stable-Baselines3 or SBX, with a stamp at the beginning of each rollout and at the end."""
    from stable_baselines3.common.callbacks import BaseCallback

    stamps: turns.Stamps = []

    class Clock(BaseCallback):
        def _on_rollout_start(self) -> None:
            stamps.append((self.num_timesteps, time.perf_counter()))

        def _on_training_end(self) -> None:
            stamps.append((self.num_timesteps, time.perf_counter()))

        def _on_step(self) -> bool:
            return True

    learner.learn(total, callback=Clock())
    return stamps


def sbx(algorithm: str) -> Train:
    """An algorithm of SBX, which is Stable-Baselines3 in JAX, by its defaults: one environment, an update each step."""

    def train(total: int, seed: int, _: str) -> turns.Stamps:
        import sbx

        return clocked(getattr(sbx, algorithm)("MlpPolicy", "Pendulum-v1", seed=seed, device="cpu"), total)

    return train


def sb3(vector: str) -> Train:
    """Stable-Baselines3's PPO with its own network (64-64 tanh), in environments of ``vector``."""

    def train(total: int, seed: int, _: str) -> turns.Stamps:
        from stable_baselines3 import PPO
        from stable_baselines3.common import vec_env
        from stable_baselines3.common.env_util import make_vec_env

        lanes = LANES["CartPole-v1"]
        batch = lanes * NUM_STEPS // NUM_MINIBATCHES
        env = make_vec_env("CartPole-v1", lanes, seed=seed, vec_env_cls=getattr(vec_env, vector))
        learner = PPO(
            "MlpPolicy",
            env,
            n_steps=NUM_STEPS,
            batch_size=batch,
            n_epochs=NUM_EPOCHS,
            ent_coef=0.01,
            seed=seed,
            device="cpu",
        )
        stamps = clocked(learner, total)
        env.close()
        return stamps

    return train


SAMPLE_FACTORY = {
    "algo": "APPO",
    "device": "cpu",
    "rollout": NUM_STEPS,
    "batch_size": LANES["CartPole-v1"] * NUM_STEPS // NUM_MINIBATCHES,
    "num_batches_per_epoch": NUM_MINIBATCHES,
    "num_epochs": NUM_EPOCHS,
    "encoder_mlp_layers": (64, 64),
    "nonlinearity": "tanh",
    "actor_critic_share_weights": False,
    "use_rnn": False,
    "recurrence": 1,
    "with_vtrace": False,
    "normalize_input": False,
    "normalize_returns": False,
    "env_frameskip": 1,
    "save_every_sec": 10**6,
    "save_best_every_sec": 10**6,
    "experiment_summaries_interval": 1,
    "decorrelate_experience_max_seconds": 0,
    "with_wandb": False,
}
"""Its options, those that set the same network and the same epochs."""
SAMPLERS = {
    "sample-factory": {"num_workers": 2, "num_envs_per_worker": 32, "worker_num_splits": 2, "async_rl": True},
    "sample-factory-1": {"num_workers": 1, "num_envs_per_worker": 64, "worker_num_splits": 2, "async_rl": True},
    "sample-factory-serial": {
        "num_workers": 1,
        "num_envs_per_worker": 64,
        "worker_num_splits": 1,
        "async_rl": False,
        "serial_mode": True,
    },
}
"""Ways to sample with 64 environments on two cores."""


def make_gym(name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> Any:
    """An environment as Sample Factory asks for one."""
    import gymnasium

    return gymnasium.make(name, render_mode=render_mode)


def sample_factory(sampler: str) -> Train:
    """Sample Factory's APPO, by a way to sample."""

    def train(total: int, seed: int, _: str) -> turns.Stamps:
        from sample_factory.algo.runners.runner import AlgoObserver
        from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
        from sample_factory.envs.env_utils import register_env
        from sample_factory.train import make_runner

        stamps: turns.Stamps = []

        class Clock(AlgoObserver):
            def on_training_step(self, runner: Any, training_iteration_since_resume: int) -> None:
                frames = sum(runner.env_steps.values())
                if not stamps or frames > stamps[-1][0]:
                    stamps.append((frames, time.perf_counter()))

        register_env("CartPole-v1", make_gym)
        with tempfile.TemporaryDirectory() as folder:
            options = {**SAMPLE_FACTORY, **SAMPLERS[sampler], "seed": seed, "train_dir": folder}
            argv = ["--env=CartPole-v1", "--experiment=timed", f"--train_for_env_steps={total}"]
            for name, value in options.items():
                argv += [f"--{name}", *map(str, value)] if isinstance(value, tuple) else [f"--{name}={value}"]
            parser, _ = parse_sf_args(argv=argv)
            _, runner = make_runner(parse_full_cfg(parser, argv))
            runner.register_observer(Clock())
            runner.init()
            runner.run()
        return stamps

    return train


def cleanrl(script: str, env: str) -> Train:
    """A script of CleanRL's, which prints a line of its SPS at the end of each iteration."""

    def train(total: int, seed: int, checkout: str) -> turns.Stamps:
        frames = LANES[env] * NUM_STEPS
        stamps: turns.Stamps = []

        def read(line: str) -> None:
            if line.startswith("SPS:"):
                stamps.append(((len(stamps) + 1) * frames, time.perf_counter()))

        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-u", os.fspath(Path(checkout, "cleanrl", script)), "--env-id", env]
            command += [
                "--seed",
                str(seed),
                "--total-timesteps",
                str(total),
                "--num-envs",
                str(LANES[env]),
                "--no-cuda",
            ]
            turns.run(command, read, folder)
        return stamps

    return train


CARTPOLE = {
    "sb3-dummy": sb3("DummyVecEnv"),
    "sb3-subproc": sb3("SubprocVecEnv"),
    **{name: sample_factory(name) for name in SAMPLERS},
}
PENDULUM = {"sbx-sac": sbx("SAC"), "sbx-crossq": sbx("CrossQ")}
PEERS = {
    "host-pendulum": PENDULUM,
    "host-cartpole": {**CARTPOLE, "cleanrl": cleanrl("ppo.py", "CartPole-v1")},
    "host-pong": {"cleanrl": cleanrl("ppo_atari_envpool.py", "Pong-v5")},
}
"""By workload and name."""
