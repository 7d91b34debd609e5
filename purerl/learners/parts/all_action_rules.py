"""The inputs and outputs of an update rule of an agent of all actions.

Oh et al. 2025 (doi 10.1038/s41586-025-09761-x, Methods).

``T`` steps of ``N`` sequences, ``A`` actions, ``K`` predictions. Outputs of networks come in rows ``R = T + 2``: those
of the observations of the steps, of the one after them, and of what followed the sequence's cut. So the row after step
``t`` is ``t + 1``. The exception is a step where a time limit cut the episode off: the row after it is the last one if
the sequence's cut is at this step, and otherwise it is not known.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import shards
from purerl.formulas import losses, returns, td_errors
from purerl.networks.all_actions import Outputs
from purerl.types import Array, PyTree, Scalar


class Steps(NamedTuple):
    """What happened at the steps of sequences, all ``[T, N]``.

    - ``action``: number of the action.
    - ``reward``: the reward.
    - ``terminated``: whether the process ended.
    - ``last``: whether the episode ended, in either way.
    - ``cut``: whether the last row is what followed.
    - ``known``: whether it is known what followed.
    - ``behaviour`` ``[T, N, A]``: logits of the policy that acted.
    """

    action: Array
    reward: Array
    terminated: Array
    last: Array
    cut: Array
    known: Array
    behaviour: Array


class Values(NamedTuple):
    """The values of the steps under the online policy.

    - ``value`` ``[R, N]``: of the observations, by the online network.
    - ``target_q`` ``[T, N, A]``: of all actions, by the target network; ``advantages`` are those less the observation's
      value by that network.
    - ``returns`` ``[T, N]``: Retrace's targets for the values of the actions that were taken. ``advantage`` is that
      less the target network's value of the observation, ``td_error`` that less the online network's value of the
      action.
    - ``scaled_advantages``, ``scaled_advantage``: in standard deviations from the running mean of advantages.
    """

    value: Array
    target_q: Array
    advantages: Array
    scaled_advantages: Array
    returns: Array
    advantage: Array
    scaled_advantage: Array
    td_error: Array


class RuleInputs(NamedTuple):
    """What a rule reads.

    These are the steps, their values, and the outputs of the online and the target network for the rows ``[R, N,
    ...]``.
    """

    steps: Steps
    values: Values
    online: Outputs
    target: Outputs


class Targets(NamedTuple):
    """What a rule returns, as logits.

    They are targets of the policy ``[T, N, A]``, of ``y`` ``[T, N, K]``, and of ``z`` of the action that was taken
    ``[T, N, K]``.
    """

    policy: Array
    y: Array
    z: Array


class Rule(NamedTuple):
    """An update rule for an agent with ``K = num_predictions``.

    ``init()`` makes the state that the rule keeps of an agent for as long as the agent learns, and ``targets(seen,
    state)`` returns the `Targets` of one update and the next state. Gradients may flow through the targets into the
    rule, but none flow into the agent.
    """

    num_predictions: int
    init: Callable[[], PyTree]
    targets: Callable[[RuleInputs, PyTree], tuple[Targets, PyTree]]


class Moments(NamedTuple):
    """Exponential moving averages ``[]`` of a number and of its square, and the product ``[]`` of all decays so far.

    The averages begin at 0.
    """

    mean: Array
    square: Array
    decays: Array


DECAY, EPSILON, ROOT_EPSILON = 0.99, 1e-6, 1e-12
"""Constants of `Moments`: the decay, and what is added to the standard deviation and under its root."""


def no_moments() -> Moments:
    """Makes the `Moments` before the first update."""
    return Moments(jnp.zeros(()), jnp.zeros(()), jnp.ones(()))


def follow(moments: Moments, x: Array, known: Array) -> Moments:
    """Updates moments by the known elements of ``x``, in all `shards` of an agent.

    Args:
        moments: Moments so far.
        x: Numbers ``[T, N]``.
        known: Which of them count, bool ``[T, N]``.
    """
    mean, square = shards.mean((losses.mean(x, known), losses.mean(jnp.square(x), known)))
    new = mean, square, jnp.zeros(())
    return Moments(*(DECAY * old + (1 - DECAY) * x for old, x in zip(moments, new, strict=True)))


def scale(moments: Moments) -> tuple[Array, Array]:
    """Returns the mean and the standard deviation ``[]``, both corrected for the averages' beginning at 0."""
    mean, square = moments.mean / (1 - moments.decays), moments.square / (1 - moments.decays)
    return mean, jnp.sqrt(jnp.maximum(square - jnp.square(mean), 0.0) + ROOT_EPSILON) + EPSILON


def following(x: Array, steps: Steps) -> Array:
    """Picks from rows ``[R, N, C]`` the one that follows each step, ``[T, N, C]``.

    Where it is not known what followed, it picks the row of the step itself, so that nothing of the next episode is
    seen there.
    """
    return jnp.where(steps.cut[..., None], x[-1:], jnp.where(steps.known[..., None], x[1:-1], x[:-2]))


def pairs(x: Array, steps: Steps) -> Array:
    """Concatenates the row of each step and the one that follows: rows ``[R, N, C]`` become ``[T, N, 2 * C]``."""
    return jnp.concatenate([x[:-2], following(x, steps)], axis=-1)


def of_action(x: Array, action: Array) -> Array:
    """Returns ``x[..., action, :]`` of ``[..., A, C]``, or ``x[..., action]`` of ``[..., A]``."""
    if x.ndim == action.ndim + 1:
        return of_action(x[..., None], action)[..., 0]
    return jnp.take_along_axis(x, action[..., None, None], axis=-2)[..., 0, :]


def bins(num_bins: int) -> Array:
    """Returns the places ``[bins]`` of the bins of a value that `td_errors.rescale` has compressed.

    They are consecutive whole numbers, the middle one of which is 0 if ``num_bins`` is odd.
    """
    return jnp.arange(num_bins, dtype=jnp.float32) - (num_bins - 1) / 2


def mean_value(logits: Array) -> Array:
    """Returns the mean values ``[...]`` of distributions given by ``logits`` ``[..., bins]`` (`bins`)."""
    return td_errors.unrescale(jax.nn.softmax(logits) @ bins(logits.shape[-1]))


def evaluate(
    steps: Steps, online: Outputs, target: Outputs, moments: Moments, gamma: Scalar, trace_lambda: Scalar
) -> tuple[Values, Moments]:
    """Computes the `Values` of ``steps``, and the moments of advantages with theirs added.

    Returns are those of Retrace on the target network's values under the online policy. It corrects for the behaviour
    by ``trace_lambda * min(1, ratio)`` (Munos et al. 2016, arXiv 1606.02647, eq. 3). Where it is not known what
    followed a step, its return is the action's value.

    Args:
        steps: What happened.
        online: Outputs of the online network, rows ``[R, N, ...]``.
        target: Outputs of the target network, rows ``[R, N, ...]``.
        moments: Moments of advantages so far.
        gamma: Discount factor per step.
        trace_lambda: Trace parameter of Retrace.

    Returns:
        The values, and the new moments, by which their advantages are scaled.
    """
    policy = jax.nn.softmax(online.policy)
    q = mean_value(online.q)  # [R, N, A]
    target_q = mean_value(target.q)
    value, target_value = (jnp.sum(policy * x, axis=-1) for x in (q, target_q))
    log_policy, log_behaviour = (
        of_action(jax.nn.log_softmax(x), steps.action) for x in (online.policy[:-2], steps.behaviour)
    )
    trace = trace_lambda * jnp.minimum(1.0, jnp.exp(log_policy - log_behaviour))
    taken, discount = of_action(target_q[:-2], steps.action), gamma * (1 - steps.terminated)
    one_step = steps.reward + discount * following(target_value[..., None], steps)[..., 0]
    stopped, stop = jnp.where(steps.known, one_step, taken), steps.last & ~steps.terminated
    columns = trace, steps.reward, taken, target_value[:-2], discount, stop, stopped
    target_return = jax.vmap(returns.stored_retrace, in_axes=1, out_axes=1)(*columns)
    advantage, advantages = target_return - target_value[:-2], (target_q - target_value[..., None])[:-2]
    moments = follow(moments, advantage, steps.known)
    mean, deviation = scale(moments)
    scaled = lambda x: (x - mean) / deviation
    return Values(
        value=value,
        target_q=target_q[:-2],
        advantages=advantages,
        scaled_advantages=scaled(advantages),
        returns=target_return,
        advantage=advantage,
        scaled_advantage=scaled(advantage),
        td_error=target_return - of_action(q[:-2], steps.action),
    ), moments


RETURN_BINS = 51
"""The number of predictions of `clipped`: the bins of a return, from about -680 to 680."""


def two_hot(value: Array, num_bins: int) -> Array:
    """Returns the distribution ``[bins]`` over the two of the `bins` beside a value ``[]``, of which it is the mean."""
    return td_errors.project(td_errors.rescale(value)[None], jnp.ones(1), bins(num_bins))


def clipped(bound: Scalar = 1.0) -> Rule:
    """Makes a rule written by hand, to compare learned ones with.

    The policy moves towards the target network's policy times ``exp(clip(A, -bound, bound))``, where ``A`` is each
    action's scaled advantage: clipped MPO (Hessel et al. 2021, "Muesli", arXiv 2104.06159, section 4.1). ``y`` and
    ``z`` learn the distribution of the return.
    """

    def targets(given: RuleInputs, state: PyTree) -> tuple[Targets, PyTree]:
        policy = given.target.policy[:-2] + jnp.clip(given.values.scaled_advantages, -bound, bound)
        each = jax.vmap(jax.vmap(lambda value: two_hot(value, RETURN_BINS)))(given.values.returns)
        logits = jnp.log(jnp.maximum(each, 1e-9))
        return Targets(policy, logits, logits), state

    return Rule(RETURN_BINS, lambda: (), targets)
