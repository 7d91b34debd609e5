"""OPEN's optimiser: a small recurrent network that moves every single parameter (Goldie et al. 2024, arXiv 2407.07082).

For each parameter it sees 19 numbers: the parameter, signs and logarithms of six momenta and of the gradient, how far
the training has progressed, the position of the layer, and how active the parameter's output unit is. A gated recurrent
unit remembers them, and the layers after it put out three numbers (section 5). Arrays over all ``P`` parameters have
them on the last axis. As published it has no step size and no Adam.
"""

import dataclasses
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl import config as cfg
from purerl import counters, draw
from purerl.errors import ConfigError
from purerl.learned import layer_activity, socket_settings
from purerl.learned.layer_activity import Layer, SeesLayers
from purerl.learned.socket_settings import Size
from purerl.learners.families import actor_critic
from purerl.learners.parts import gradients, settings, time_aware
from purerl.types import Array, Env, Key, PyTree

DECAYS = 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999
"""The fraction of itself that each momentum keeps in a step."""
FEATURES = 19
GATES = "ir", "iz", "in"
STEP = 1e-3
"""The factor on updates, and on the exponent of their size."""

FORM = cfg.Needs("optimiser_form = 'open'", lambda made: made.optimiser_form == "open")


@dataclasses.dataclass(frozen=True)
class OpenSettings:
    """What moves parameters."""

    optimiser_form: Literal["adam", "open"] = "adam"
    """Form of the optimiser. adam: a network changes Adam's update, element by element. open: OPEN's recurrent network
    of 19 features."""
    optimiser_base: Annotated[Literal["none", "adam"], FORM] = "adam"
    """What learned updates are added to. none: nothing, as published. adam: Adam's update, before its learning rate."""
    optimiser_memory: Annotated[Size, FORM] = 8
    """Size of the recurrent state per parameter."""
    optimiser_layers: Annotated[tuple[Size, ...], FORM] = (16, 16)
    """Widths of the dense layers after the recurrent layer."""


class OpenState(NamedTuple):
    """The state of the optimiser: updates so far, the key of the noise, momenta ``[6, P]`` and carry ``[memory, P]``.

    Each update folds its number into the key.
    """

    updates: gradients.Descent
    key: Key
    momenta: Array
    carry: Array


class Progress(NamedTuple):
    """How far a training has progressed, from 0 to 1: in iterations, and in epochs within an iteration."""

    training: Array
    batch: Array


def read(fields: dict[str, Any]) -> OpenSettings:
    """Reads settings from JSON. Raises `ConfigError`, a line for each that is not valid."""
    return socket_settings.read(OpenSettings, "optimiser", "optimiser_layers", fields)


def choose(options: Any, env: Env) -> dict[str, Any]:
    """Returns the settings among ``options`` as JSON; none if all have their defaults.

    Raises:
        ConfigError: A setting has no effect.
    """
    made = socket_settings.among(OpenSettings, options)
    if unused := cfg.unused([made], OpenSettings()):
        raise ConfigError("\n".join(unused))
    return socket_settings.changed(OpenSettings, options)


def problems(config: Any) -> list[str]:
    """Lists why the optimiser cannot move the parameters of ``config``'s algorithm."""
    if not isinstance(config, actor_critic.ActorCriticConfig):
        return [
            "optimiser: OPEN's form moves an actor and its critic at once, as policy gradients such as ppo have them"
        ]
    too_many = [name for name in ("num_epochs", "num_minibatches") if getattr(config, name, 1) > counters.MOST_DIVISOR]
    return [f"{name}: must be at most {counters.MOST_DIVISOR} with OPEN's optimiser" for name in too_many]


def init(made: OpenSettings, key: Key) -> PyTree:
    """Makes meta-parameters. Consumes ``key``.

    Kernels are Gaussians with standard deviation ``1 / sqrt(fan_in)``. With Adam as base the last kernel is zero, so
    that Adam is unchanged.
    """
    memory, keys = made.optimiser_memory, iter(jax.random.split(key, 7 + len(made.optimiser_layers)))

    def kernel(rows: int, columns: int) -> Array:
        return jax.random.normal(next(keys), (rows, columns)) / np.sqrt(rows)

    gates: dict[str, dict[str, Array]] = {
        name: {"bias": jnp.zeros(memory), "kernel": kernel(FEATURES, memory)} for name in GATES
    }
    gates |= {name: {"kernel": kernel(memory, memory)} for name in ("hr", "hz", "hn")}
    gates["hn"]["bias"] = jnp.zeros(memory)
    layers, width = [], memory
    for size in made.optimiser_layers:
        norm = {"bias": jnp.zeros(size), "scale": jnp.ones(size)}
        layers.append({"dense": {"bias": jnp.zeros(size), "kernel": kernel(width, size)}, "norm": norm})
        width = size
    last = kernel(width, 3) * float(made.optimiser_base == "none")
    return {"gru": gates, "mlp": [*layers, {"dense": {"bias": jnp.zeros(3), "kernel": last}}]}


def average(momenta: Array, grads: Array) -> Array:
    """Computes the next momenta ``[6, P]`` with the decays `DECAYS`, without bias correction."""
    decays = jnp.array(DECAYS, jnp.float32)[:, None]
    return decays * momenta + (1 - decays) * grads[None]


def features(params: Array, grads: Array, momenta: Array, progress: Progress, layers: list[Layer]) -> Array:
    """Computes the inputs of the network ``[19, P]``.

    The first 15 rows are divided by their root mean square over each tensor.

    Args:
        params: ``[P]``.
        grads: ``[P]``.
        momenta: ``[6, P]``.
        progress: How far the training has progressed.
        layers: The layers of the tensors that make up ``P``, in their order.
    """
    log = lambda x: jnp.log(jnp.abs(x) + 1e-13)
    own = jnp.concatenate([params[None], jnp.sign(momenta), log(momenta), jnp.sign(grads)[None], log(grads)[None]])
    ends = np.cumsum([layer.place.size for layer in layers])[:-1].tolist()
    scaled = [
        part * jax.lax.rsqrt(1e-5 + jnp.mean(jnp.square(part), axis=1, keepdims=True))
        for part in jnp.split(own, ends, axis=1)
    ]
    place = jnp.concatenate([layer.place.reshape(-1) for layer in layers])
    active = jnp.concatenate([_dormancy(layer).reshape(-1) for layer in layers])
    everywhere = lambda x: jnp.broadcast_to(x, params.shape)
    conditions = jnp.stack([everywhere(progress.training), place, everywhere(progress.batch), active])
    return jnp.concatenate([jnp.concatenate(scaled, axis=1), conditions])


def _dormancy(layer: Layer) -> Array:
    """Computes the activity of each parameter's output unit over its layer's mean, in the shape of the tensor."""
    active = layer.activity + 1e-11
    return jnp.broadcast_to(active / jnp.sum(active, keepdims=True) * active.size, layer.place.shape)


def remember(gates: PyTree, carry: Array, x: Array) -> Array:
    """Computes the next carry ``[memory, P]`` of a gated recurrent unit with the inputs ``x`` ``[F, P]``.

    Cho et al. 2014, arXiv 1406.1078; the reset gate scales the carry's contribution after its kernel.
    """
    from_input = _dense(_beside([gates[name] for name in GATES]), x)
    kept = _beside([{"kernel": gates[name]["kernel"]} for name in ("hr", "hz", "hn")])["kernel"].T @ carry
    (reset, update, new), (by_reset, by_update, by_new) = jnp.split(from_input, 3), jnp.split(kept, 3)
    update = jax.nn.sigmoid(update + by_update)
    new = jnp.tanh(new + jax.nn.sigmoid(reset + by_reset) * (by_new + gates["hn"]["bias"][:, None]))
    return (1 - update) * new + update * carry


def outputs(layers: PyTree, x: Array) -> Array:
    """Computes three numbers for each parameter ``[3, P]`` from its carry ``x``.

    Each dense layer but the last is normalised (Ba et al. 2016, arXiv 1607.06450) and rectified.
    """
    for layer in layers[:-1]:
        x = _dense(layer["dense"], x)
        x = x - _means(x)
        x = x * jax.lax.rsqrt(_means(jnp.square(x)) + 1e-6)
        x = jax.nn.relu(x * layer["norm"]["scale"][:, None] + layer["norm"]["bias"][:, None])
    return _dense(layers[-1]["dense"], x)


def moves(out: Array, noise: Array, step: float = STEP) -> Array:
    """Computes what is subtracted from parameters ``[P]``, from outputs ``[3, P]`` and noise ``[P]``; its mean is 0."""
    size, exponent, random = out
    made = step * size * jnp.exp(STEP * exponent) + step * random * noise
    return made - jnp.mean(made)[None]


def make(meta_params: PyTree, config: Any, made: OpenSettings) -> SeesLayers:
    """Makes the optimiser of an algorithm with ``config``.

    Gradients of actor and critic are each clipped to ``max_grad_norm``, before anything else; the noise acts on the
    actor alone. With Adam as base, OPEN's update, in units of the step size, is added to Adam's direction.

    Raises:
        ConfigError: `problems` lists some.
    """
    if lines := problems(config):
        raise ConfigError("\n".join(lines))
    clip = gradients.clip_by_norm(config.max_grad_norm)
    alone = made.optimiser_base == "none"

    def begin(params: Array) -> OpenState:
        zeros = lambda rows: jnp.zeros((rows, params.size))
        updates = gradients.Descent(counters.of())
        return OpenState(updates, _key(params), zeros(len(DECAYS)), zeros(made.optimiser_memory))

    def change(
        direction: Array, state: OpenState, params: Array, *, grads: Array, layers: PyTree
    ) -> tuple[Array, OpenState]:
        parts = layer_activity.networks(layers)
        tensors = {name: jax.tree.leaves(part, is_leaf=_is_layer) for name, part in parts.items()}
        sizes = {name: sum(layer.place.size for layer in some) for name, some in tensors.items()}
        cut = jnp.split(grads, np.cumsum(list(sizes.values()))[:-1].tolist())
        grads = jnp.concatenate([clip.update(part, optax.EmptyState())[0] for part in cut])
        momenta = average(state.momenta, grads)
        flat = [layer for some in tensors.values() for layer in some]
        inputs = features(params, grads, momenta, progress(config, state.updates.updates), flat)
        carry = remember(meta_params["gru"], state.carry, inputs)
        drawn = draw.normal(_folded(state.key, state.updates.updates), (sizes["actor"],))
        noise = jnp.pad(drawn, (0, params.size - sizes["actor"]))
        taken = moves(outputs(meta_params["mlp"], carry), noise, STEP if alone else 1.0)
        after = OpenState(gradients.Descent(counters.increment(state.updates.updates)), state.key, momenta, carry)
        return (-taken if alone else direction + taken), after

    transformation = optax.GradientTransformationExtraArgs(begin, change)
    chain = gradients.chain(transformation) if alone else gradients.make_optimiser(config, transformation)

    def update(grads: Array, state: PyTree, params: Array, *, layers: PyTree) -> tuple[Array, PyTree]:
        result: tuple[Array, PyTree] = chain.update(grads, state, params, grads=grads, layers=layers)
        return result

    return SeesLayers(chain.init, update)


def progress(config: Any, updates: counters.Count) -> Progress:
    """Computes how far a training has progressed after ``updates``. Without epochs ``batch`` stays 0."""
    by_epochs = isinstance(config, settings.Minibatches)
    epochs, minibatches = (config.num_epochs, config.num_minibatches) if by_epochs else (1, 1)
    all_epochs, _ = counters.divide(updates, minibatches)
    iteration, epoch = counters.divide(all_epochs, epochs)
    return Progress(time_aware.passed(config, iteration), epoch.astype(jnp.float32) / max(epochs - 1, 1))


def _key(params: Array) -> Key:
    """Makes a key of the noise from the bits of initial parameters, so that agents that begin differently differ."""
    words = jax.lax.bitcast_convert_type(params, jnp.uint32)
    odd = 2 * jnp.arange(params.size, dtype=jnp.uint32) + 1
    return jax.random.key(jnp.sum(words * odd, dtype=jnp.uint32))


def _folded(key: Key, updates: counters.Count) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, updates.high), updates.low)


def _dense(layer: PyTree, x: Array) -> Array:
    """Applies a dense layer, ``[in, P] -> [out, P]``."""
    made: Array = layer["kernel"].T @ x + layer["bias"][:, None]
    return made


def _means(x: Array) -> Array:
    """Computes means ``[1, P]`` of columns ``[n, P]`` by a matrix product: on CPU ten times as fast as a row sum."""
    return jnp.matmul(jnp.full((1, x.shape[0]), 1 / x.shape[0]), x, precision="highest")


def _beside(layers: list[PyTree]) -> PyTree:
    """Joins layers of the same inputs into one."""
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *layers)


def _is_layer(x: Any) -> bool:
    return isinstance(x, Layer)
