"""Fits small networks of a socket's own form to learned functions, by regression.

Goldie et al. 2025 (arXiv 2507.17668) distil learned algorithms into networks of their own size or smaller ones, which
sometimes generalise better.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl.errors import ConfigError
from purerl.learned import artefacts, socket_settings, sockets
from purerl.meta.distill import card_of, errors
from purerl.names import Trust
from purerl.types import Array, Key, PyTree

STEPS, LEARNING_RATE = 4000, 0.01
"""The steps of Adam on all points, and the first step size, which falls to 0 by a cosine."""
BEGINNINGS = 4
"""The number of networks that are fitted side by side, from random initial parameters."""
SPREAD = 0.1
"""The standard deviation of the noise on a last layer's initial parameters, since a drift's network has no slope where
they are 0."""
POINTS: dict[str, tuple[np.ndarray, ...]] = {
    "value-loss": (errors(401), np.array([-1.0, -0.3, 0.0, 0.3, 1.0])),
    "policy-drift": (np.linspace(-1.0, 1.0, 41), np.linspace(-4.0, 4.0, 41)),
    "td-loss": (errors(401),),
}
"""Values of the inputs on which a network is fitted, in all combinations. The inputs of a value loss are the error and
the distance of the value from the old one, those of a drift are log ratio and advantage, and that of a TD loss is the
error."""


def artefact(
    learned: artefacts.Artefact, hidden_sizes: tuple[int, ...], seed: int, *, trust: Trust = False, where: Path = Path()
) -> artefacts.Artefact:
    """Fits a network with hidden layers of some sizes to a learned function of the same socket.

    It is fitted by least squares, up to a constant. Errors of losses are divided by ``1 + x^2``, because losses grow so
    with their error ``x``. The card of the result has two fractions of the sum of squares that the fit explains: of the
    function (``explained``), and of its difference from the algorithm's own (``explained_change``).

    The initial parameters follow from ``seed``. ``trust`` and ``where`` are as for `artefacts.training`.

    Raises:
        ConfigError: The socket is not among `POINTS`, the function is time-aware, or the sizes are not valid; and in
            the cases of `artefacts.training`.
    """
    _, config = artefacts.training(learned, trust=trust, where=where)
    if learned.socket not in POINTS:
        raise ConfigError(f"socket = {learned.socket!r}: no network is fitted to it; only to {', '.join(POINTS)}")
    artefacts.check_timeless(learned)
    settings = {**learned.settings, "hidden_sizes": list(hidden_sizes)}
    socket_settings.read(sockets.SIZED[learned.socket], learned.socket, "hidden_sizes", settings)
    student = sockets.make(learned.socket, **settings)
    inputs, weight = _points(learned.socket)
    origin = [jnp.zeros(1) for _ in inputs]

    def values(parts: dict[str, Any]) -> Array:
        function = parts[student.option]
        return (function(*inputs, config) - function(*origin, config)) * weight

    target = values(learned.parts(config))
    blank = student.init(jax.random.key(0))
    change = target - values(student.parts(blank, config))
    total = jnp.sum(jnp.square(change)) + 1e-30

    def error(meta_params: PyTree) -> Array:
        return jnp.sum(jnp.square(values(student.parts(meta_params, config)) - target)) / total

    keys = jax.random.split(jax.random.key(seed), BEGINNINGS)
    fitted, misfits = jax.jit(jax.vmap(lambda key: _fit(student, error, key)))(keys)
    best = int(jnp.nanargmin(misfits)) if np.any(np.isfinite(misfits)) else 0
    meta_params, left = jax.tree.map(lambda x: x[best], fitted), float(misfits[best])
    if not left < 1.0:  # the fit explains nothing
        meta_params, left = blank, float(error(blank))
    if learned.socket == "policy-drift":
        target = artefacts.learned_drift(learned, inputs[0], inputs[1], config)
    whole = float(jnp.sum(jnp.square(target))) + 1e-30
    about = {"explained": 1.0 - left * float(total) / whole, "explained_change": 1.0 - left}
    return artefacts.of_socket(learned.socket, meta_params, card_of(learned, about), settings=settings)


def _points(socket: str) -> tuple[list[Array], Array]:
    """Returns the inputs ``[N]`` of a socket's function, and the weights ``[N]`` of its errors."""
    first, *more = (x.reshape(-1) for x in np.meshgrid(*POINTS[socket]))
    inputs = [first, first - more[0], np.zeros_like(first)] if socket == "value-loss" else [first, *more]
    weight = np.ones_like(first) if socket == "policy-drift" else 1 / (1 + np.square(first))
    return [jnp.asarray(x, jnp.float32) for x in inputs], jnp.asarray(weight, jnp.float32)


def _fit(socket: sockets.Socket, error: Any, key: Key) -> tuple[PyTree, Array]:
    """Fits meta-parameters of a socket for a small ``error(meta_params)``; returns both. Consumes ``key``."""
    key_init, key_last = jax.random.split(key)
    *hidden, last = socket.init(key_init)
    leaves, structure = jax.tree.flatten(last)
    keys = jax.random.split(key_last, len(leaves))
    drawn = [x + SPREAD * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    begun = [*hidden, jax.tree.unflatten(structure, drawn)]
    optimiser = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, STEPS))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        meta_params, state = carry
        updates, state = optimiser.update(jax.grad(error)(meta_params), state)
        return (optax.apply_updates(meta_params, updates), state), None

    (fitted, _), _ = jax.lax.scan(step, (begun, optimiser.init(begun)), None, STEPS)
    return fitted, error(fitted)
