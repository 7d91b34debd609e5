"""DiscoRL's update rule, Disco103, as a network with the names of its published arrays.

Source: Oh et al. 2025, "Discovering state-of-the-art reinforcement learning algorithms", Nature, doi
10.1038/s41586-025-09761-x, Methods.

An LSTM reads the steps of a sequence backwards, within an episode, and puts out targets for the agent's policy and
predictions. Its outputs are multiplied by what a second LSTM remembers of the agent's whole training; the second LSTM
takes one step an update.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import shards
from purerl.formulas import losses
from purerl.learners.parts.all_action_rules import Rule, RuleInputs, Targets, of_action, pairs
from purerl.networks.all_actions import Outputs
from purerl.types import Array, Key

PREDICTIONS, UNITS, LIFETIME, NARROW, PAIR = 600, 256, 128, 16, 2
"""The length of ``y`` and ``z``, the units of the LSTM over steps and of the one over updates, the width of the small
layers, and the channels of an action's features."""
INPUTS, ACTION_INPUTS = 27, 9
"""How many numbers the rule reads of a step, and of each action at that step."""
OVER_STEPS, OVER_UPDATES = "lstm", "lstm/~/meta_lstm/~unroll"
"""The prefixes of the arrays' names for the network over steps, and for the network over updates."""


def _layers(predictions: int) -> dict[str, tuple[int, int]]:
    """Returns the numbers of inputs and outputs of each layer, by its name."""
    readers = {
        f"{place}/{name}": sizes
        for place in (OVER_STEPS, OVER_UPDATES)
        for name, sizes in {
            "mlp/~/linear_0": (predictions, NARROW),
            "mlp/~/linear_1": (NARROW, 1),
            "mlp_1/~/linear_0": (predictions, NARROW),
            "mlp_1/~/linear_1": (NARROW, 1),
            "sequential/conv1_d": (2 * ACTION_INPUTS, NARROW),
            "sequential/conv1_d_1": (2 * NARROW, PAIR),
        }.items()
    }
    return readers | {
        "lstm/linear": (LIFETIME, UNITS),
        "lstm/linear_1": (UNITS, 1),
        "lstm/linear_2": (UNITS, predictions),
        "lstm/linear_3": (UNITS, predictions),
        "lstm/linear_4": (NARROW, 1),
        "lstm/lstm/linear": (INPUTS + UNITS, 4 * UNITS),
        "lstm/sequential_1/conv1_d": (2 * (UNITS + PAIR), NARROW),
        f"{OVER_UPDATES}/lstm/linear": (NARROW + LIFETIME, 4 * LIFETIME),
        f"{OVER_UPDATES}/mlp_2/~/linear_0": (INPUTS + 2, NARROW),
    }


def shapes(predictions: int = PREDICTIONS) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the rule's 42 arrays by their published names.

    Each layer has ``w`` ``[in, out]``, or ``[1, in, out]`` if it is over actions, and ``b`` ``[out]``.
    """
    result: dict[str, tuple[int, ...]] = {}
    for name, (fan_in, fan_out) in _layers(predictions).items():
        result[f"{name}/b"] = (fan_out,)
        result[f"{name}/w"] = (1, fan_in, fan_out) if "conv1_d" in name else (fan_in, fan_out)
    return result


def init(key: Key, predictions: int = PREDICTIONS) -> dict[str, Array]:
    """Draws the arrays of an untrained rule. Consumes ``key``.

    Weights are Gaussians of standard deviation ``1 / sqrt(in)``, truncated at two of them; biases are 0.
    """
    expected = shapes(predictions)
    keys = dict(zip(expected, jax.random.split(key, len(expected)), strict=True))

    def draw(name: str, shape: tuple[int, ...]) -> Array:
        if name.endswith("/b"):
            return jnp.zeros(shape)
        return jax.random.truncated_normal(keys[name], -2.0, 2.0, shape) / math.sqrt(shape[-2])

    return {name: draw(name, shape) for name, shape in expected.items()}


class Memory(NamedTuple):
    """The rule's state of an agent's training: hidden state and cell of the LSTM over updates, both ``[128]``."""

    hidden: Array
    cell: Array


def rule(arrays: dict[str, Array]) -> Rule:
    """Makes the update rule from its 42 ``arrays``, whose shapes `shapes` gives."""
    predictions = arrays["lstm/linear_2/b"].shape[0]

    def linear(name: str, x: Array) -> Array:
        weights, bias = arrays[f"{name}/w"], arrays[f"{name}/b"]
        return x @ weights.reshape(weights.shape[-2:]) + bias.reshape(*[1] * (x.ndim - 1), -1)

    def read_prediction(name: str, logits: Array) -> Array:
        """Maps a prediction to one number, ``[..., K] -> [..., 1]``."""
        hidden = jax.nn.relu(linear(f"{name}/~/linear_0", jax.nn.softmax(logits)))
        return linear(f"{name}/~/linear_1", hidden)

    def over_actions(name: str, x: Array) -> Array:
        """Applies a layer over actions ``[T, N, A, C]``, which sees each action beside the mean of all."""
        mean = jnp.broadcast_to(jnp.mean(x, axis=-2, keepdims=True), x.shape)
        return jax.nn.relu(linear(name, jnp.concatenate([x, mean], axis=-1)))

    def inputs(place: str, given: RuleInputs) -> tuple[Array, Array]:
        """Returns the inputs of the network at ``place``: of steps ``[T, N, 27]``, and of actions ``[T, N, A, 2]``."""
        steps, values, online, target = given
        policy = jax.nn.softmax(online.policy)  # [R, N, A]
        acting, behaving, aiming = (
            jax.nn.softmax(x) for x in (online.policy[:-2], steps.behaviour, target.policy[:-2])
        )
        z, target_z = (read_prediction(f"{place}/mlp_1", x.z) for x in (online, target))  # [R, N, A, 1]

        def of_predictions(out: Outputs) -> Array:
            return pairs(read_prediction(f"{place}/mlp", out.y), steps)

        def of_actions(z: Array) -> list[Array]:
            mean = jnp.sum(policy[..., None] * z, axis=-2)
            return [of_action(z[:-2], steps.action), pairs(mean, steps), pairs(jnp.max(z, axis=-2), steps)]

        one = lambda x: x[..., None]
        each = [acting, behaving, aiming, z[:-2, ..., 0], target_z[:-2, ..., 0], signed_log(values.target_q)]
        each += [signed_log(values.advantages), values.scaled_advantages]
        each += [jax.nn.one_hot(steps.action, acting.shape[-1])]
        hidden = over_actions(f"{place}/sequential/conv1_d", jnp.stack(each, axis=-1))
        features = over_actions(f"{place}/sequential/conv1_d_1", hidden)
        columns = [
            one(of_action(acting, steps.action)),
            one(of_action(behaving, steps.action)),
            one(signed_log(steps.reward)),
            one(1.0 - steps.terminated),
            pairs(one(signed_log(values.value)), steps),
            one(signed_log(values.advantage)),
            one(values.scaled_advantage),
            one(of_action(aiming, steps.action)),
            of_predictions(online),
            of_predictions(target),
            *of_actions(z),
            *of_actions(target_z),
            jnp.mean(features, axis=-2),
            of_action(features, steps.action),
        ]
        return jnp.concatenate(columns, axis=-1), features

    def cell(name: str, x: Array, state: Memory) -> Memory:
        gates = linear(f"{name}/linear", jnp.concatenate([x, state.hidden], axis=-1))
        enter, new, forget, leave = jnp.split(gates, 4, axis=-1)
        kept = jax.nn.sigmoid(forget + 1) * state.cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        return Memory(jax.nn.sigmoid(leave) * jnp.tanh(kept), kept)

    def backwards(x: Array, last: Array) -> Array:
        """Runs the LSTM over steps ``[T, N, C]`` from the last to the first, reset where an episode ended."""

        def step(state: Memory, now: tuple[Array, Array]) -> tuple[Memory, Array]:
            row, ended = now
            state = cell("lstm/lstm", row, jax.tree.map(lambda x: jnp.where(ended[:, None], 0.0, x), state))
            return state, state.hidden

        nothing = jnp.zeros((x.shape[1], UNITS))
        return jax.lax.scan(step, Memory(nothing, nothing), (x, last), reverse=True)[1]

    def targets(given: RuleInputs, memory: Memory) -> tuple[Targets, Memory]:
        x, features = inputs(OVER_STEPS, given)
        hidden = backwards(x, given.steps.last) * linear("lstm/linear", memory.hidden).reshape(1, 1, -1)
        number, y, z = (linear(f"lstm/linear_{i}", hidden) for i in (1, 2, 3))
        beside = jnp.broadcast_to(hidden[..., None, :], (*features.shape[:-1], UNITS))
        policy = over_actions("lstm/sequential_1/conv1_d", jnp.concatenate([beside, features], axis=-1))
        policy = linear("lstm/linear_4", policy)[..., 0]
        columns = [inputs(OVER_UPDATES, given)[0], number, read_prediction(f"{OVER_UPDATES}/mlp", y)]
        projected = linear(f"{OVER_UPDATES}/mlp_2/~/linear_0", jnp.concatenate(columns, axis=-1))  # [T, N, 16]
        mean = jax.vmap(losses.mean, in_axes=(-1, None))(projected, given.steps.known)
        return Targets(policy, y, z), cell(f"{OVER_UPDATES}/lstm", shards.mean(mean), memory)

    nothing = lambda: Memory(jnp.zeros(LIFETIME), jnp.zeros(LIFETIME))
    return Rule(predictions, nothing, targets)


def signed_log(x: Array) -> Array:
    """Compresses numbers of any size and sign, elementwise: ``sign(x) * log(1 + |x|)``."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))
