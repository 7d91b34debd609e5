"""The command ``purerl check-env``, which writes nothing."""

import json
from typing import TYPE_CHECKING, Any

from purerl.cli import parsing
from purerl.cli.machine import prepared
from purerl.display import output
from purerl.envs.check_env import examine
from purerl.errors import ConfigError, own_code

if TYPE_CHECKING:
    from purerl.envs.check_env import Examined
    from purerl.runs.describing.reading_options import CheckOptions
    from purerl.types import Env


def check_env(args: list[str]) -> int:
    """Runs ``purerl check-env ENV``.

    Returns:
        0 if the environment passes all checks; with ``--json`` 2 if it does not.

    Raises:
        ConfigError: The options are wrong; or the environment breaks the contract, with one line for each problem,
            unless ``--json`` is given.
    """
    from purerl import config as cfg
    from purerl.runs.describing.reading_options import CheckOptions

    options = parsing.parse(CheckOptions, "purerl check-env", args, positional=True)
    cfg.check(options)

    import jax

    from purerl import envs

    with prepared(options), own_code():
        env = envs.make(options.env, **options.params)
        result = examine(env, jax.random.key(options.seed), options.steps, options.envs)
    if options.json:
        played = {"steps": options.steps, "envs": options.envs}
        report = {"env": options.env, **played, "marks": _marks(env), **result._asdict()}
        output.show(json.dumps(report, indent=2))
        return 2 if result.problems else 0
    if result.problems:
        raise ConfigError("\n".join(f"env = {options.env!r}: {problem}" for problem in result.problems))
    output.show("\n".join(_summary(env, result, options)))
    return 0


def _summary(env: "Env", result: "Examined", options: "CheckOptions") -> list[str]:
    """Returns the lines that describe what was checked, with the notes of the check."""
    rows = [
        ("observations", _space(env.observation_space)),
        ("actions", _space(env.action_space)),
        *([("agents", str(env.num_agents))] if env.num_agents > 1 else []),
        *([("marks", ", ".join(marks))] if (marks := _marks(env)) else []),
        ("play", f"{options.envs} copies, {options.steps} steps each, at random"),
        ("episodes", f"{result.terminated} terminated, {result.truncated} truncated"),
        *(("note", note) for note in result.notes),
    ]
    first = f"{options.env} passes all checks of its spaces, its types and the values in this play:"
    return [first, *(f"  {name:<14}{text}" for name, text in rows)]


def _marks(env: "Env") -> list[str]:
    """Returns what the environment says of itself, of the flags that are saved with a policy."""
    from purerl.envs.spaces_only import FLAGS

    return [flag for flag in FLAGS if getattr(env, flag)]


def _space(space: Any) -> str:
    """Describes a space in a few words: the kind of every leaf, with its path in a tree."""
    import jax

    from purerl import spaces

    box = lambda leaf: f"Box {jax.numpy.dtype(leaf.dtype)}{list(leaf.shape)}"
    words = lambda leaf: box(leaf) if isinstance(leaf, spaces.Box) else repr(leaf)
    flat = jax.tree_util.tree_flatten_with_path(space, is_leaf=spaces.is_leaf)[0]
    return ", ".join(f"{jax.tree_util.keystr(path)} {words(leaf)}".strip() for path, leaf in flat)
