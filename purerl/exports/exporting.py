"""``purerl export``: the policy of an agent, of any algorithm, as one of several kinds of file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy
from jax import export

from purerl import spaces, trees
from purerl.display.progress import console, say
from purerl.envs import agents
from purerl.errors import ConfigError
from purerl.exports import programs, runner
from purerl.names import here
from purerl.runs.describing.reading_options import ExportOptions
from purerl.runs.describing.run_directory import EXPORTS, check_out
from purerl.runs.reading import choosing, evaluation, loading
from purerl.store import trusted_modules, writing
from purerl.store.writing import atomic, atomic_folder
from purerl.types import Learner, PyTree, Situation
from purerl.version import __version__

DEFAULTS = {"stablehlo": EXPORTS[0], "numpy": EXPORTS[2], "onnx": EXPORTS[3]}
"""The file or folder that is made in the run directory for each kind, unless another place is given."""
PLATFORMS = "cpu", "cuda", "tpu"
"""The platforms that a program of `jax.export` is made for."""


class Acting(NamedTuple):
    """A policy as a function of arrays, ``act(*obs, *carry) -> [action, *carry]``, each ``[B, ...]``.

    ``obs`` and ``carry`` have the names of the arrays, and the shapes and dtypes of one row. ``card`` describes the
    policy. Of a tree of actions there is an array for each leaf, whose names are ``actions``.
    """

    act: Callable[..., list[Any]]
    obs: dict[str, jax.ShapeDtypeStruct]
    carry: dict[str, jax.ShapeDtypeStruct]
    card: dict[str, Any]
    actions: tuple[str, ...] = ("action",)

    @property
    def leaves(self) -> list[jax.ShapeDtypeStruct]:
        """The shapes and dtypes of one row of all arguments of ``act``."""
        return [*self.obs.values(), *self.carry.values()]


def acting(learner: Learner, policy: PyTree, space: spaces.Space, card: dict[str, Any]) -> Acting:
    """Makes the `Acting` of a learner's evaluated policy, which takes its most likely action.

    Args:
        learner: The learner.
        policy: The parameters of its policy.
        space: The space of observations. Of them the function takes what the policy reads (`Learner.own`).
        card: The description of the policy.

    Raises:
        ConfigError: If the policy draws its actions at random, if it remembers rewards and ends of episodes by a rule
            of its own, or if its memory does not begin with zeros.
    """
    space, fill = agents.filled(space, learner.own)
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), spaces.struct(space))
    begin = jax.device_get(learner.init_carry(1))
    if learner.restart is not None:
        raise ConfigError("this policy has its own memory of rewards and episode ends; it cannot be exported")
    if any(np.any(leaf) for leaf in jax.tree.leaves(begin)):
        raise ConfigError("this policy starts episodes with a non-zero memory; it cannot be exported")
    exploit = lambda key, obs, carry: learner.exploit(policy, Situation(fill(obs), carry), key)
    key = jax.random.key(0)
    if programs.uses_first(exploit, key, row, begin):
        raise ConfigError("this policy samples its actions; it cannot be exported")
    named = trees.named_leaves(row)
    obs = {f"obs{name}": jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for name, x in named.items()}
    remembered = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in jax.tree.leaves(begin)]
    carry = {f"carry{i}": leaf for i, leaf in enumerate(remembered)}

    def act(*arrays: Any) -> list[Any]:
        observation = jax.tree.unflatten(jax.tree.structure(row), arrays[: len(obs)])
        memory = jax.tree.unflatten(jax.tree.structure(begin), arrays[len(obs) :])
        action, after = learner.exploit(policy, Situation(fill(observation), memory), key)
        return [*jax.tree.leaves(action), *jax.tree.leaves(after)]

    action = jax.eval_shape(exploit, key, row, begin)[0]
    actions = tuple(f"action{name and '.' + name}" for name in trees.named_leaves(action))
    return Acting(act, obs, carry, card, actions)


def of_agent(agent: loading.Agent) -> Acting:
    """Makes the `Acting` of a run's agent. Raises `ConfigError` as `acting` does.

    Of one that searches it is the network alone, as an agent of 0 simulations acts, and the card says so.
    """
    card = {name: agent.saved[name] for name in ("algo", "env")}
    card |= {"env_params": agent.env_params, "agent": agent.choice.of[1], **agent.label, "purerl": __version__}
    card |= evaluation.manner(False, agent.simulations)
    return acting(agent.learner, agent.policy, agent.env.observation_space, card)


def export_run(options: ExportOptions) -> Path:
    """Writes the policy that ``options`` ask for, and returns the path.

    One that was chosen by its final evaluation is evaluated anew, if its environment is there, and the result is
    printed.

    Raises:
        ConfigError: If the path may not be written, and as `loading.agent`, `of_agent` and the function that writes
            the file do; before anything is written.
    """
    path = here(options.out) if options.out else here(options.run) / DEFAULTS[options.to]
    made = (path, _card_of(path)) if options.to == "stablehlo" else (path,)
    check_out(*made, overwrite=options.overwrite, given=bool(options.out), folder=options.to == "numpy")
    if path.is_symlink():
        raise ConfigError(f"out = {str(path)!r}: exists and is not an export --to {options.to}")
    trust = trusted_modules.memory(options.trust)
    agent = loading.agent(options.run, options.agent, trust=trust)
    if agent.simulations:
        agent = loading.agent(options.run, options.agent, trust=trust, simulations=0)
        say(console(), f"{agent.saved['algo']} searches in training; what is exported is the network alone")
    choosing.tell(agent.choice)
    policy = of_agent(agent)
    ranked = agent.choice.is_ranked and not agent.missing
    told = evaluation.anew(agent, trust=trust).words if ranked else ""
    {"stablehlo": write_stablehlo, "numpy": write_numpy, "onnx": write_onnx}[options.to](path, policy)
    if told:
        say(console(), told)
    return path


def write_stablehlo(path: Path, policy: Acting) -> None:
    """Writes a program of `jax.export` for any batch size, and its card beside it as ``NAME.json``.

    Raises:
        ConfigError: If the package flatbuffers is missing.
    """
    made = export.export(jax.jit(policy.act), platforms=PLATFORMS)(*programs.batched(policy.leaves))
    try:
        body = made.serialize()
    except ImportError:
        raise ConfigError("to = 'stablehlo': needs the package flatbuffers; pip install 'purerl[export]'") from None
    with atomic(path) as temporary:
        temporary.write_bytes(body)
        writing.write_json(_card_of(path), {**policy.card, **_arrays(policy)})


def _card_of(path: Path) -> Path:
    """Returns the path of the card of a program."""
    return path.parent / f"{path.name}.json"


def write_numpy(path: Path, policy: Acting) -> None:
    """Writes a directory that needs numpy alone: the program, its arrays, and the Python file that runs it.

    Raises:
        ConfigError: If the policy needs an operation that numpy does not have, or if the directory holds anything else.
    """
    program = traced(policy)
    named = lambda values: [value.name for value in values]
    steps = [{"op": s.op, "in": named(s.given), "out": named(s.made), "with": s.how} for s in program.steps]
    outputs = named(program.outputs)
    own = {runner.PROGRAM, runner.ARRAYS, "policy.py", "__pycache__"}
    if path.exists() and not {each.name for each in path.iterdir()} <= own:
        raise ConfigError(f"out = {str(path)!r}: exists and is not an export")
    card = {"format": runner.FORMAT, **policy.card, **_arrays(policy), "steps": steps, "outputs": outputs}
    with atomic_folder(path) as folder:
        (folder / runner.ARRAYS).write_bytes(safetensors.numpy.save(program.constants))
        (folder / "policy.py").write_bytes(Path(runner.__file__).read_bytes())
        writing.write_json(folder / runner.PROGRAM, card)


def write_onnx(path: Path, policy: Acting) -> None:
    """Writes a graph of ONNX.

    Raises:
        ConfigError: If the policy needs an operation that numpy does not have or that `onnx_graph` does not write, or
            if the package onnx is missing.
    """
    try:
        from purerl.exports import onnx_graph
    except ImportError:
        raise ConfigError("to = 'onnx': needs the package onnx; pip install 'purerl[export]'") from None
    body = onnx_graph.serialized(traced(policy), policy.card, policy.actions)
    with atomic(path) as temporary:
        temporary.write_bytes(body)


def traced(policy: Acting) -> programs.ExportedProgram:
    """Traces the program of a policy.

    Raises:
        ConfigError: As `programs.trace` does.
    """
    return programs.trace(policy.act, [*policy.obs, *policy.carry], policy.leaves)


def _arrays(policy: Acting) -> dict[str, Any]:
    """Returns the arguments of a policy as a card has them, names, shapes of a row, and dtypes; and names of actions.

    These are left out where the action is one array.
    """

    def entries(named: dict[str, jax.ShapeDtypeStruct]) -> list[dict[str, Any]]:
        return [{"name": n, "shape": list(x.shape), "dtype": np.dtype(x.dtype).name} for n, x in named.items()]

    actions = {} if policy.actions == ("action",) else {"actions": list(policy.actions)}
    return {"inputs": entries(policy.obs), "carry": entries(policy.carry), **actions}
