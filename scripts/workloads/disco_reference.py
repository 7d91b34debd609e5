"""DiscoRL's update and the oracle of our tests against numbers of the authors' own code, in a folder that a user has:
``case[1-6]_*.npz`` with single updates, ``case7_agent_three_learner_steps.npz`` with three steps of a whole agent, and
the weights ``disco_103.npz``."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from purerl.algos import disco
from purerl.learned import artefacts
from purerl.learned import disco as disco_rules
from purerl.learners.parts import all_action_rules as rules
from purerl.networks import MLP
from purerl.networks.all_actions import AllActions, Outputs
from purerl.types import Array

sys.path.append(str(Path(__file__).parent.parent.parent / "tests"))

from disco_oracle import Oracle

WEIGHTS, AGENT = "disco_103.npz", "case7_agent_three_learner_steps.npz"
NETWORK = {"policy": "logits", "y": "y", "z": "z", "q": "q_logits", "following": "aux_pi_logits"}
"""What the network puts out, and its name in the files."""
VALUES = {
    "returns": "q_retrace_target",
    "advantage": "adv",
    "scaled_advantage": "normalized_adv",
    "advantages": "qv_adv",
    "scaled_advantages": "normalized_qv_adv",
    "td_error": "q_td",
    "target_q": "q_target_net_scalar",
}
TERMS = {"policy": "pi_kl", "y": "y_kl", "z": "z_kl", "following": "aux_pi_kl", "value": "q_cross_entropy"}
MOMENTS = "moment1", "moment2", "decay_product"
LAYERS = {
    "features": "~_embedding_pass/torso/~/linear_0",
    "policy": "~_head_pass/torso_head/~/linear_0",
    "y": "~_head_pass/torso_head_1/~/linear_0",
    "root": "linear",
    "hidden_z": "mlp/~/linear_0",
    "heads_z": "mlp/~/linear_1",
    "hidden_following": "mlp_1/~/linear_0",
    "heads_following": "mlp_1/~/linear_1",
    "hidden_q": "mlp_2/~/linear_0",
    "heads_q": "mlp_2/~/linear_1",
}
"""Layers of the agent's network, and their names in the files."""
CONFIG = disco.DiscoConfig(learning_rate=1e-2)

Pair = tuple[str, Any, Any]
"""What is compared: a name, ours and theirs."""


def with_last_row(x: Array) -> Array:
    """Rows ``[T + 1, ...]`` as rules read them: no step is cut, so nothing reads the last row."""
    return jnp.concatenate([x, x[-1:]])


def masked(terms: dict[str, Array], mask: Array) -> Array:
    """The loss of an agent that leaves out steps of which their environments show nothing."""
    return jnp.sum(sum(terms.values()) * mask) / (jnp.sum(mask) + 1e-8)


def of_actions(out: Outputs, action: Array) -> Outputs:
    """Of rows for all actions: of the steps, for the actions that were taken."""
    taken = (rules.of_action(x, action) for x in (out.z[:-2], out.q[:-2], out.following[:-2]))
    return Outputs(out.policy[:-2], out.y[:-2], *taken)


def update(case: Any) -> tuple[rules.Steps, Outputs, Outputs, Array, dict[str, Any]]:
    """The steps of a single update, what both networks put out, which steps count in its loss, and its first state."""
    given = lambda name: jnp.asarray(case[f"input__{name}"])
    online = {name: with_last_row(given(f"online_{theirs}")) for name, theirs in NETWORK.items()}
    target = {
        name: with_last_row(given(f"target_net_{theirs}")) if f"input__target_net_{theirs}" in case else online[name]
        for name, theirs in NETWORK.items()
    }
    ended, always = given("is_terminal"), jnp.ones(given("rewards").shape, bool)
    behaviour = given("behaviour_logits")[:-1]
    steps = rules.Steps(given("actions")[:-1], given("rewards"), ended, ended, ~always, always, behaviour)
    state = {name[14:]: jnp.asarray(case[name]) for name in case if name.startswith("state_before__")}
    return steps, Outputs(**online), Outputs(**target), given("timestep_discounts")[:-1] > 0, state


def moments_of(state: dict[str, Any], name: str) -> rules.Moments:
    return rules.Moments(*(state[f"{name}_ema_{part}"] for part in MOMENTS))


def single(case: Any, arrays: Any) -> Iterator[Pair]:
    """What the program makes of one update."""
    steps, online, target, mask, state = update(case)
    values, advantages = rules.evaluate(steps, online, target, moments_of(state, "adv"), CONFIG.gamma, 0.95)
    memory = disco_rules.Memory(state["meta_lstm_hidden"], state["meta_lstm_cell"])
    targets, memory = disco_rules.rule(arrays).targets(rules.RuleInputs(steps, values, online, target), memory)
    errors = rules.follow(moments_of(state, "td"), values.td_error, steps.known)

    def loss(online: Outputs) -> tuple[Array, dict[str, Array]]:
        after = jax.lax.stop_gradient(rules.following(online.policy, steps))
        batch = disco.Batch(None, None, targets, after, values.returns, steps.terminated, steps.known, mask)
        terms = disco.terms(CONFIG, of_actions(online, steps.action), batch)
        return masked(terms, mask), terms

    (total, terms), slope = jax.value_and_grad(loss, has_aux=True)(online)
    for ours, theirs in VALUES.items():
        yield f"value {theirs}", getattr(values, ours), case[f"value__{theirs}"][: len(mask)]
    yield "value v_online", values.value[:-1], case["value__v_online_scalar"]
    for ours, name in zip(targets, ("pi", "y", "z"), strict=True):
        yield f"target {name}", ours, case[f"output__{name}_hat_logits"]
    yield "state hidden", memory.hidden, case["state_after__meta_lstm_hidden"]
    yield "state cell", memory.cell, case["state_after__meta_lstm_cell"]
    for name, moments in (("adv", advantages), ("td", errors)):
        for part, number in zip(MOMENTS, moments, strict=True):
            yield f"state {name} {part}", number, case[f"state_after__{name}_ema_{part}"]
    for ours, theirs in TERMS.items():
        weight = CONFIG.value_coef if ours == "value" else 1.0
        result = f"loss__{theirs}_per_step" + ("_masked" if ours == "following" else "")
        yield f"loss {theirs}", terms[f"{ours}_loss"] / weight, case[result]
    yield "loss total", total, case["loss__total_masked_as_in_agent"]
    yield "gradient logits", slope.policy[:-1], case["grad_of_masked_loss__wrt_online_logits"]
    yield "gradient aux_pi", slope.following[:-1], case["grad_of_masked_loss__wrt_online_aux_pi"]
    for ours, theirs in (("y", "y"), ("z", "z"), ("q", "q")):
        sizes = jnp.sqrt(jnp.sum(jnp.square(getattr(slope, ours)), axis=tuple(range(2, getattr(slope, ours).ndim))))
        yield f"gradient size {theirs}", sizes[:-1], case[f"grad_of_masked_loss__norm_per_step_wrt_online_{theirs}"]


def oracle(case: Any, arrays: Any) -> Iterator[Pair]:
    """What the oracle of our tests makes of the same update."""
    steps, online, target, _, state = update(case)
    inputs = {name: np.asarray(x) for name, x in (steps._asdict() | online._asdict()).items()}
    inputs |= {f"target_{name}": np.asarray(x) for name, x in target._asdict().items()}
    plain = Oracle(arrays)
    values, moments = plain.values(inputs, tuple(map(float, moments_of(state, "adv"))), CONFIG.gamma, 0.95)
    before = np.asarray(state["meta_lstm_hidden"], float), np.asarray(state["meta_lstm_cell"], float)
    targets, after = plain.targets(inputs, values, *before)
    for ours, theirs in VALUES.items():
        yield f"oracle value {theirs}", values[ours], case[f"value__{theirs}"][: len(steps.reward)]
    for ours, name in zip(targets, ("pi", "y", "z"), strict=True):
        yield f"oracle target {name}", ours, case[f"output__{name}_hat_logits"]
    yield "oracle state hidden", after[0], case["state_after__meta_lstm_hidden"]
    yield "oracle state cell", after[1], case["state_after__meta_lstm_cell"]
    yield "oracle state adv moment2", moments[1], case["state_after__adv_ema_moment2"]
    for ours, x in plain.losses(inputs, values, targets).items():
        result = f"loss__{TERMS[ours]}_per_step" + ("_masked" if ours == "following" else "")
        yield f"oracle loss {TERMS[ours]}", x, case[result]


def tree(case: Any, start: str) -> dict[str, Any]:
    """The arrays of the agent's network in a file, as our network has them; ``start`` is before their names."""
    dense = lambda name: {"kernel": case[f"{start}/mlp/{name}/w"], "bias": case[f"{start}/mlp/{name}/b"]}
    made: dict[str, Any] = {ours: dense(theirs) for ours, theirs in LAYERS.items()}
    cell, num_actions = dense("action_cond/linear"), case["step1_online_logits"].shape[-1]
    made["gates"] = {"kernel": cell["kernel"][num_actions:], "bias": cell["bias"]}
    return jax.tree.map(jnp.asarray, made | {"action": cell["kernel"][:num_actions]})


def agent(case: Any, arrays: Any) -> Iterator[Pair]:
    """What three steps of a whole agent come to."""
    params, target = {"params": tree(case, "step0_agent_params")}, {"params": tree(case, "step0_target_params")}
    width, size = params["params"]["root"]["kernel"].shape
    network = AllActions(MLP(()), case["step1_online_logits"].shape[-1], 600, disco.NUM_BINS, width, size)
    rule, optimiser = disco_rules.rule(arrays), optax.GradientTransformation(*disco.make_optimiser(CONFIG))
    opt_state, kept = optimiser.init(params), rule.init()
    advantages = errors = rules.no_moments()
    for step in (1, 2, 3):
        given = lambda name, step=step: jnp.asarray(case[f"step{step}_input_{name}"])
        rows, number = given("observations"), given("actions")[:-1]
        goes_on = given("discounts_false_means_last_timestep")
        ended, always, mask = ~goes_on[1:], jnp.ones(goes_on[1:].shape, bool), goes_on[:-1]
        behaviour = given("behaviour_logits")[:-1]
        steps = rules.Steps(number, given("rewards")[1:], ended, ended, ~always, always, behaviour)
        online, aiming = (jax.tree.map(with_last_row, network.apply(x, rows)) for x in (params, target))
        values, advantages = rules.evaluate(steps, online, aiming, advantages, CONFIG.gamma, 0.95)
        targets, kept = rule.targets(rules.RuleInputs(steps, values, online, aiming), kept)
        errors = rules.follow(errors, values.td_error, always)
        after = rules.following(online.policy, steps)
        batch = disco.Batch(None, None, targets, after, values.returns, ended, always, mask)

        def loss(params: Any, rows=rows, number=number, batch=batch, mask=mask) -> tuple[Array, dict[str, Array]]:
            out = network.apply(params, rows[:-1], number, method=AllActions.of_action)
            terms = disco.terms(CONFIG, out, batch)
            return masked(terms, mask), terms

        (total, terms), slope = jax.value_and_grad(loss, has_aux=True)(params)
        results = {
            "online_logits": online.policy[:-1],
            "pi_hat_logits": targets.policy,
            "adv": values.advantage,
            "q_td": values.td_error,
            "log_total_loss": total,
            "log_pi_loss": jnp.mean(terms["policy_loss"]),
            "log_aux_kl_loss": jnp.mean(terms["following_loss"]),
            "log_q_loss": jnp.mean(terms["value_loss"]) / CONFIG.value_coef,
            "log_global_gradient_norm": optax.global_norm(slope),
            "state_after_meta_lstm_hidden": kept.hidden,
            "state_after_meta_lstm_cell": kept.cell,
        }
        for name, moments in (("adv", advantages), ("td", errors)):
            results |= {f"state_after_{name}_ema_{part}": x for part, x in zip(MOMENTS, moments, strict=True)}
        for name, ours in results.items():
            if f"step{step}_{name}" in case:
                yield f"step {step} {name}", ours, case[f"step{step}_{name}"]
        if step == 1:
            theirs = jax.tree.leaves(tree(case, "step1_gradient"))
            for ours, expected in zip(jax.tree.leaves(slope["params"]), theirs, strict=True):
                yield "step 1 gradient", ours, expected
        changes, opt_state = optimiser.update(slope, opt_state, params)
        before, params = params, optax.apply_updates(params, changes)
        target = jax.tree.map(lambda old, new: old + CONFIG.tau * (new - old), target, before)


def far(ours: Any, theirs: Any) -> float:
    """The largest difference in units of what is allowed: ``2e-4 max |array| + 2e-5``."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape != theirs.shape:
        return np.inf
    return float(np.max(np.abs(ours - theirs)) / (2e-4 * np.max(np.abs(theirs)) + 2e-5))


def check(folder: Path) -> bool:
    """Tells, case by case, how far the worst arrays are from theirs; returns whether all are as near as is allowed."""
    arrays, close = artefacts.load(folder / WEIGHTS).meta_params, True
    cases = [(path, made) for path in sorted(folder.glob("case[1-6]_*.npz")) for made in (single, oracle)]
    with jax.default_matmul_precision("highest"):
        for path, made in [*cases, (folder / AGENT, agent)]:
            with np.load(path, allow_pickle=False) as case:
                results = [(far(ours, theirs), name) for name, ours, theirs in made(case, arrays)]
            close &= all(distance <= 1 for distance, _ in results)
            distance, name = max(results)
            print(
                f"{path.stem:<66} {made.__name__:<7} {len(results):>3} arrays; worst {distance:.3f} of allowed: {name}"
            )
            for distance, name in results:
                if distance > 1:
                    print(f"  TOO FAR: {name} {distance:.2f}")
    return close
