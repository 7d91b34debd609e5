"""Plots of learned functions, as PNG files."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from purerl.display import plots
from purerl.formulas import td_errors
from purerl.learned import artefacts, sockets

REACH = 30.0
"""The largest error for which losses are drawn."""


def draw(path: Path, artefact: artefacts.Artefact, config: Any) -> None:
    """Writes the plot of a learned function to ``path``, atomically; does nothing for sockets without a plot."""
    figures = {"value-loss": value_loss, "policy-drift": policy_drift, "td-loss": td_loss}
    if artefact.socket in figures:
        plots.save(path, figures[artefact.socket](artefact, config))


def value_loss(artefact: artefacts.Artefact, config: Any) -> Figure:
    """A learned value loss as a function of ``value - target``, beside half the squared error, and both slopes."""
    loss = artefact.parts(config)["value_loss"]
    error = jnp.linspace(-REACH, REACH, 601)
    return _beside(
        error, loss(error, error, jnp.zeros_like(error), config), 0.5 * jnp.square(error), "L2", "value - target"
    )


def td_loss(artefact: artefacts.Artefact, config: Any) -> Figure:
    """A learned TD loss as a function of the TD error, beside the Huber loss, and both slopes."""
    error = jnp.linspace(-REACH, REACH, 601)
    loss = artefact.parts(config)["td_loss"](error, config)
    return _beside(error, loss, td_errors.huber(error, config.huber_delta), "Huber", "temporal-difference error")


def _beside(error: Any, learned: Any, known: Any, name: str, label: str) -> Figure:
    """Two panels of a learned and a known loss: their values, 0 at error 0, and their slopes.

    - ``error``: ``[N]``, ascending and symmetric around 0.
    - ``learned``: ``[N]``, the learned loss.
    - ``known``: ``[N]``, the loss to compare with.
    - ``name``: of the known loss.
    - ``label``: of the x axis.
    """
    error, learned, known = (np.asarray(x, np.float64) for x in (error, learned, known))
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    middle = len(error) // 2
    for panel, curve, text in (
        (left, lambda y: y - y[middle], "loss"),
        (right, lambda y: np.gradient(y, error), "slope"),
    ):
        panel.plot(error, curve(learned), label="learned")
        panel.plot(error, curve(known), label=name, linestyle="dashed")
        panel.set(xlabel=label, ylabel=text)
        panel.legend(fontsize="small")
    return figure


def policy_drift(artefact: artefacts.Artefact, config: Any) -> Figure:
    """A learned drift as a function of ratio and advantage, beside PPO's."""
    ratio, advantage = jnp.linspace(0.3, 2.0, 171), jnp.linspace(-3.0, 3.0, 121)
    log_ratio, across = (x.reshape(-1) for x in jnp.meshgrid(jnp.log(ratio), advantage))
    learned = artefacts.learned_drift(artefact, log_ratio, across, config)
    figure = Figure(figsize=(9, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    both = learned, sockets.clip_drift(log_ratio, across, config)
    top = max(float(jnp.max(drift)) for drift in both) or 1.0
    for panel, drift, title in zip(panels, both, ("learned", "PPO's clip"), strict=True):
        grid = np.asarray(drift).reshape(len(advantage), len(ratio))
        colours = panel.pcolormesh(ratio, advantage, grid, vmin=0.0, vmax=top, shading="nearest")
        panel.set(title=title, xlabel="ratio", ylabel="advantage")
    figure.colorbar(colours, ax=panels, label="drift")
    return figure
