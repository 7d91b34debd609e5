"""Plots of learned functions, as PNG files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import SubFigure

from purerl.display import plots
from purerl.display.plots import Figure
from purerl.formulas import td_errors
from purerl.learned import artefacts, messages, sockets
from purerl.learned.written import Function, Written
from purerl.learners.parts.time_aware import Timed

Canvas = Figure | SubFigure
"""A figure, or a part of one, on which a plot is drawn."""
REACH = 30.0
"""The largest error for which losses are drawn."""
HEARD, PANELS, ELEMENTS = 2.0, 4, 10
"""The largest value of an observation's element for which messages are drawn, and the most numbers and elements."""


def draw(path: Path, artefact: Function, config: Any) -> None:
    """Writes the plot of a function to ``path``, atomically; does nothing for sockets without a plot."""
    if artefact.socket in FIGURES:
        plots.save(path, FIGURES[artefact.socket](artefact, config))


def search(x: Any, lines: Mapping[str, Any], axis: str, artefact: artefacts.Artefact, config: Any) -> Figure:
    """Draws the curves of a search and, below them, the learned function if its socket has a plot; returns the figure.

    ``lines`` are ``[1, points]`` by name, over ``x`` ``[points]``, whose axis has the name ``axis``.
    """
    drawn = artefact.socket in FIGURES
    figure = Figure(figsize=(9, 8) if drawn else (9, 4), layout="constrained")
    above, *below = figure.subfigures(2 if drawn else 1, 1, squeeze=False)[:, 0]
    plots.curves_figure(x, lines, f"search for a {artefact.socket}", (axis, "fitness"), above)
    if drawn:
        FIGURES[artefact.socket](artefact, config, below[0])
    return figure


def value_loss(artefact: Function, config: Any, canvas: Canvas | None = None) -> Canvas:
    """Draws a value loss as a function of ``value - target``, beside half the squared error, and both slopes."""
    loss = artefact.parts(config)["value_loss"]
    error = jnp.linspace(-REACH, REACH, 601)
    learned, known = loss(error, error, jnp.zeros_like(error), config), 0.5 * jnp.square(error)
    return _beside(error, learned, known, (_word(artefact), "L2"), "value - target", canvas)


def td_loss(artefact: Function, config: Any, canvas: Canvas | None = None) -> Canvas:
    """Draws a TD loss as a function of the TD error, beside the Huber loss, and both slopes."""
    error = jnp.linspace(-REACH, REACH, 601)
    loss = artefact.parts(config)["td_loss"](error, config)
    known = td_errors.huber(error, config.huber_delta)
    return _beside(error, loss, known, (_word(artefact), "Huber"), "temporal-difference error", canvas)


def cheap_talk(artefact: artefacts.Artefact, config: Any, canvas: Canvas | None = None) -> Canvas:
    """Draws learned messages to agents that learn.

    Each number of a message is drawn as a function of each element of the observation while the others are 0; at most
    `PANELS` numbers and `ELEMENTS` elements.
    """
    made = messages.read(artefact.settings)
    talk = messages.make(made)
    x = jnp.linspace(-HEARD, HEARD, 401)
    count = min(made.messages, PANELS)
    figure = canvas or Figure(figsize=(1 + 4 * count, 4), layout="constrained")
    panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    for element in range(min(made.inputs, ELEMENTS)):
        obs = jnp.zeros((len(x), made.inputs)).at[:, element].set(x)
        message = np.asarray(talk.speak(artefact.meta_params, obs))
        for i, panel in enumerate(panels):
            panel.plot(x, message[:, i], label=f"element {element}" + " (unseen)" * (element in made.unseen))
            panel.set(xlabel="element of the observation", ylabel="" if i else "message", title=f"number {i}")
    plots.beside(panels[-1])
    return figure


def _word(artefact: Function) -> str:
    """Returns the label of a function beside a known one."""
    return "written" if isinstance(artefact, Written) else "learned"


def _beside(error: Any, learned: Any, known: Any, names: tuple[str, str], label: str, canvas: Canvas | None) -> Canvas:
    """Draws a learned and a known loss ``[N]``, with their names, in two panels: values, 0 at error 0, and slopes.

    ``error`` ``[N]`` is ascending and symmetric around 0, and ``label`` that of the x axis.
    """
    error, learned, known = (np.asarray(x, np.float64) for x in (error, learned, known))
    figure = canvas or Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    middle = len(error) // 2
    curves = (left, lambda y: y - y[middle], "loss"), (right, lambda y: np.gradient(y, error), "slope")
    for panel, curve, text in curves:
        panel.plot(error, curve(learned), label=names[0], color=plots.COLOURS[0])
        panel.plot(error, curve(known), label=names[1], color=plots.COLOURS[1], linestyle="dashed")
        panel.set(xlabel=label, ylabel=text)
    plots.beside(left)
    return figure


def policy_drift(artefact: Function, config: Any, canvas: Canvas | None = None) -> Canvas:
    """Draws a drift as a function of ratio and advantage, beside PPO's.

    A time-aware drift is drawn twice: as it is in the first iteration of a training, and in the last.
    """
    ratio, advantage = jnp.linspace(0.3, 2.0, 171), jnp.linspace(-3.0, 3.0, 121)
    log_ratio, across = (x.reshape(-1) for x in jnp.meshgrid(jnp.log(ratio), advantage))
    word = _word(artefact)
    aware = isinstance(artefact.parts(config)["objective"], Timed)
    times = {f"{word}, at first": 0.0, f"{word}, at last": 1.0} if aware else {word: 0.0}
    drifts = {title: artefacts.learned_drift(artefact, log_ratio, across, config, x) for title, x in times.items()}
    drifts["PPO's clip"] = sockets.clip_drift(log_ratio, across, config)
    figure = canvas or Figure(figsize=(1 + 4 * len(drifts), 4), layout="constrained")
    panels = figure.subplots(1, len(drifts), sharey=True)
    top = max(float(jnp.max(jnp.where(jnp.isfinite(drift), drift, 0.0))) for drift in drifts.values()) or 1.0
    for panel, (title, drift) in zip(panels, drifts.items(), strict=True):
        grid = np.asarray(drift).reshape(len(advantage), len(ratio))
        colours = panel.pcolormesh(ratio, advantage, grid, vmin=0.0, vmax=top, shading="nearest")
        panel.set(title=title, xlabel="ratio", ylabel="advantage")
    figure.colorbar(colours, ax=panels, label="drift")
    return figure


FIGURES: dict[str, Callable[..., Canvas]] = {
    "value-loss": value_loss,
    "policy-drift": policy_drift,
    "td-loss": td_loss,
    "cheap-talk": cheap_talk,
}
"""The plots of learned functions, by their sockets."""
