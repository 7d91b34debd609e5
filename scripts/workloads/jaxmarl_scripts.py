"""JaxMARL's scripts of IPPO, VDN and QMIX on MPE (baselines/ in its repository): their settings, and what runs them."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

NUM_AGENTS = 3
IPPO = {
    "LR": 2.5e-4,
    "NUM_ENVS": 16,
    "NUM_STEPS": 128,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ANNEAL_LR": True,
    "ENV_NAME": "MPE_simple_spread_v3",
    "ENV_KWARGS": {},
}
"""baselines/IPPO/config/ippo_ff_mpe.yaml."""
Q_LEARNING = {
    "NUM_ENVS": 8,
    "NUM_STEPS": 26,
    "BUFFER_SIZE": 5_000,
    "BUFFER_BATCH_SIZE": 32,
    "HIDDEN_SIZE": 64,
    "MIXER_EMBEDDING_DIM": 32,
    "MIXER_HYPERNET_HIDDEN_DIM": 128,
    "MIXER_INIT_SCALE": 0.001,
    "EPS_START": 1.0,
    "EPS_FINISH": 0.05,
    "EPS_DECAY": 0.1,
    "MAX_GRAD_NORM": 25.0,
    "TARGET_UPDATE_INTERVAL": 200,
    "TAU": 1.0,
    "NUM_EPOCHS": 1,
    "LR": 0.005,
    "LEARNING_STARTS": 10_000,
    "LR_LINEAR_DECAY": True,
    "GAMMA": 0.9,
    "ENV_NAME": "MPE_simple_spread_v3",
    "ENV_KWARGS": {},
    "WANDB_MODE": "disabled",
}
"""baselines/QLearning/config/alg/ql_rnn_mpe.yaml."""
SCRIPTS = {
    "ippo": ("baselines/IPPO/ippo_ff_mpe.py", IPPO),
    "vdn": ("baselines/QLearning/vdn_rnn.py", Q_LEARNING),
    "qmix": ("baselines/QLearning/qmix_rnn.py", Q_LEARNING),
}
"""By algorithm: the script and its settings."""


def initialise_one_after_another() -> None:
    """Keeps orthogonal initialisers, whose batched QR deadlocks on CPU, from being batched by vmap; those that flax's
    cells were defined with, too."""
    import jax
    from jax.nn.initializers import orthogonal

    drawn = orthogonal.__globals__["random"]
    draw = drawn.orthogonal

    def one_after_another(key, *shape):
        return jax.custom_batching.sequential_vmap(lambda key: draw(key, *shape))(key)

    drawn.orthogonal = one_after_another


def stand_in_for_unused_packages() -> None:
    """JaxMARL's scripts import what only their ``main`` uses, and log to Weights & Biases."""
    nothing = lambda *args, **kwargs: None
    for name, attributes in {
        "wandb": {"log": nothing},
        "hydra": {"main": lambda **settings: lambda main: main},
        "omegaconf": {"OmegaConf": nothing},
    }.items():
        module = sys.modules[name] = types.ModuleType(name)
        vars(module).update(attributes)


def make_train(algorithm: str, checkout: str, frames: int, last: int, episodes: int) -> Callable[[Any], Any]:
    """The training of one team by a script of ``checkout``: a function of a raw key that gives frames, updates,
    parameters and an agent's return.

    That is IPPO's mean over its ``last`` iterations, Q-learning's over so many greedy ``episodes`` at the end; nan
    without ``episodes``.
    """
    import jax.numpy as jnp

    stand_in_for_unused_packages()
    initialise_one_after_another()
    script, settings = SCRIPTS[algorithm]
    path = Path(checkout, script)
    sys.path[:0] = [checkout, str(path.parent)]
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # which jaxmarl sets the streams to
    if algorithm == "ippo":
        import ippo_ff_mpe as module
    elif algorithm == "vdn":
        import vdn_rnn as module
    else:
        import qmix_rnn as module
    settings = {**settings, "TOTAL_TIMESTEPS": frames}

    def ippo(key):
        made = train(key)
        learner, result = made["runner_state"][0], made["metrics"]["returned_episode_returns"]
        return frames, learner.step, learner.params, jnp.mean(result[-last:]) / NUM_AGENTS

    def q_learning(key):
        learner, _, tested, _ = train(key)["runner_state"]
        result = tested["returned_episode_returns"] / NUM_AGENTS if episodes else jnp.nan
        return learner.timesteps, learner.grad_steps, learner.params, result

    if algorithm == "ippo":
        train = module.make_train(settings)
        return ippo
    of_test = {"TEST_INTERVAL": 1.0, "TEST_NUM_STEPS": settings["NUM_STEPS"], "TEST_NUM_ENVS": episodes}
    settings = {**settings, **of_test, "TEST_DURING_TRAINING": bool(episodes)}
    train = module.make_train(settings, module.env_from_config(settings)[0])
    return q_learning
