"""How much of a policy's network is in use, as metrics beside those of its learner."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from purerl import config as cfg
from purerl import trees
from purerl.formulas import activations
from purerl.learners.parts.many_agents import AgentSettings
from purerl.learners.wrappers.wrapper import Wrapper
from purerl.loops.settings import Loop
from purerl.networks import MLP
from purerl.networks.batch_renorm import RenormMLP
from purerl.networks.torsos import SimBa
from purerl.types import Array, Env, Key, Learner, PyTree, Sample, Situation, Transition, Updated

MOST_OBSERVATIONS = 256
"""The largest number of observations of a batch that the network is applied to."""


@cfg.config
class DiagnosticsSettings:
    """No settings: an option of the command line asks for the wrapper."""


def problems(config: Loop, env: Env | None) -> list[str]:
    """Returns the reasons why the network cannot be diagnosed, a line each."""
    if not isinstance(config, AgentSettings) or config.share_parameters:
        return []
    return ["diagnostics = True: needs one network for all agents, share_parameters = True"]


def diagnosed(learner: Learner) -> Learner:
    """Returns ``learner`` with two more metrics, of its policy after an update.

    They are computed on observations that the policy was updated with:

    - ``dormant_units``: the fraction of the hidden units that are dormant (`activations.dormant`).
    - ``feature_rank``: how many directions the features before the last layer span (`activations.effective_rank`).

    The state and what is learned stay as they are. The cost is a forward pass for each update, in which networks with a
    memory begin with an empty one. Both metrics are nan where no layer is hidden.
    """

    def update(state: PyTree, given: Any, key: Key) -> Updated:
        updated = learner.update(state, given, key)
        obs = _observations(given)
        here = Situation(obs, learner.init_carry(trees.length(obs)))
        forward = lambda: learner.exploit(learner.policy(updated.state), here, key)
        return updated._replace(metrics={**updated.metrics, **_statistics(hidden(forward, trees.length(obs)))})

    return learner._replace(update=update)


def hidden(forward: Callable[[], Any], size: int) -> list[Array]:
    """Returns the inputs ``[size, F]`` of each dense layer while ``forward()`` runs.

    The first layer of an `MLP`, a `RenormMLP` or a `SimBa` is left out, because its inputs are observations, or the
    outputs of a convolution.
    """
    inputs: dict[int, Array] = {}

    def look(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Any) -> Any:
        module = context.module
        if isinstance(module, nn.Dense) and context.method_name == "__call__":
            first = isinstance(module.parent, MLP | RenormMLP | SimBa) and module.name == "Dense_0"
            if not first and args[0].ndim == 2 and args[0].shape[0] == size:
                inputs.setdefault(id(args[0]), args[0])
        return call(*args, **kwargs)

    with nn.intercept_methods(look):
        forward()
    return list(inputs.values())


def _observations(given: Transition | Sample) -> PyTree:
    """Returns observations ``[N, ...]`` of a trajectory or a sample."""
    items = given.items if isinstance(given, Sample) else given
    obs = trees.merge(items.obs, 2) if isinstance(items, Transition) else items.obs
    return jax.tree.map(lambda x: x[:MOST_OBSERVATIONS], obs)


def _statistics(layers: list[Array]) -> dict[str, Array]:
    """Computes the metrics of hidden layers, the last one last."""
    if not layers:
        return {"dormant_units": jnp.full((), jnp.nan), "feature_rank": jnp.full((), jnp.nan)}
    dormant = jnp.concatenate([activations.dormant(layer) for layer in layers])
    return {
        "dormant_units": jnp.mean(dormant, dtype=jnp.float32),
        "feature_rank": activations.effective_rank(layers[-1]),
    }


diagnostics = Wrapper(
    "diagnostics",
    DiagnosticsSettings,
    "diagnostics",
    False,
    wrap=lambda config, env, learner: diagnosed(learner),
    on=(False,),
    problems=problems,
)
"""The wrapper is not in the table: an option of the command line puts it around an algorithm, and no setting turns
it off."""
