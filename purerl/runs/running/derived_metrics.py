"""Metrics that follow from the config and the number of the iteration, and so cost no program anything."""

from typing import Any

import numpy as np


def columns(config: Any, iterations: np.ndarray, *, own_optimiser: bool = False) -> dict[str, np.ndarray]:
    """Computes the metrics that follow from the config, after each of some iterations.

    - ``learning_rate``: Adam's step size; not with the user's own optimiser.
    - ``replay_fill``: the fraction of the replay that holds data.
    - ``replay_age``: the mean age of the stored steps, in frames of an agent.
    - ``policy_lag``: by how many updates the parameters that acted are older than those that learn. On policy it is a
      mean over the data that is learned from, off policy over all data that is stored.

    Args:
        config: A config whose floats are scalars or ``[P]``; ``P`` is 1 for scalars.
        iterations: The numbers of finished iterations, ``[n]``.
        own_optimiser: Whether the user's own optimiser takes the place of Adam.

    Returns:
        The metrics that the config has, by name, each ``[n, P]`` float32.
    """
    done = np.asarray(iterations, np.float64)[:, None]
    updates = config.total_updates / config.num_iterations if hasattr(config, "total_updates") else None
    derived = {}
    if hasattr(config, "learning_rate_decay") and not own_optimiser:
        rate, decay = np.asarray(config.learning_rate, np.float64), np.asarray(config.learning_rate_decay, np.float64)
        derived["learning_rate"] = rate * (1 - decay * np.minimum(done / config.num_iterations, 1.0))
    if hasattr(config, "capacity_rows"):
        rows = np.minimum(config.warmup_rows + done * config.num_steps, config.capacity_rows)
        derived["replay_fill"] = rows / config.capacity_rows
        derived["replay_age"] = (rows - 1) / 2 * config.num_envs
        derived["policy_lag"] = (rows - 1) / 2 * updates / config.num_steps
    elif updates is not None:
        lag = np.asarray(getattr(config, "lag", 0.0), np.float64)
        derived["policy_lag"] = lag * updates + (updates - 1) / 2 + 0 * done
    return {name: np.atleast_2d(values).astype(np.float32) for name, values in derived.items()}
