"""Closed forms as expression trees in JSON: ``["tanh", ["mul", 2.0, "advantage"]]``. They are never executed as code.

A tree is a number, the name of a variable, or a list of an operation of `OPERATIONS` and its arguments.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from purerl.errors import ConfigError
from purerl.types import Array

OPERATIONS: dict[str, tuple[int, Callable[..., Array]]] = {
    "add": (2, jnp.add),
    "sub": (2, jnp.subtract),
    "mul": (2, jnp.multiply),
    "div": (2, jnp.divide),
    "max": (2, jnp.maximum),
    "min": (2, jnp.minimum),
    "neg": (1, jnp.negative),
    "abs": (1, jnp.abs),
    "square": (1, jnp.square),
    "exp": (1, jnp.exp),
    "expm1": (1, jnp.expm1),
    "log1p_abs": (1, lambda x: jnp.log1p(jnp.abs(x))),
    "tanh": (1, jnp.tanh),
    "relu": (1, jax.nn.relu),
    "if_positive": (3, lambda x, yes, no: jnp.where(x >= 0, yes, no)),
}
"""The number of arguments and the elementwise function of each operation, by its name."""
LARGEST = 3e38
"""The largest accepted magnitude of a number, just below the largest float32."""
DEPTH, NODES = 40, 1000
"""The greatest accepted depth and number of nodes of a tree."""


def check(tree: Any, variables: tuple[str, ...]) -> None:
    """Raises `ConfigError`, with a message of one line, if ``tree`` is not a valid expression in ``variables``."""
    count, waiting = 0, [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if count > NODES or depth > DEPTH:
            raise ConfigError(f"expression: more than {NODES} nodes, or deeper than {DEPTH}")
        if isinstance(node, str):
            if node not in variables:
                raise ConfigError(f"expression: unknown variable {node[:40]!r}; it has {', '.join(variables)}")
        elif isinstance(node, list) and node and isinstance(node[0], str) and node[0] in OPERATIONS:
            if len(node) != 1 + OPERATIONS[node[0]][0]:
                raise ConfigError(
                    f"expression: {node[0]} takes {OPERATIONS[node[0]][0]} arguments, got {len(node) - 1}"
                )
            waiting += [(argument, depth + 1) for argument in node[1:]]
        elif isinstance(node, bool) or not isinstance(node, int | float) or not abs(node) <= LARGEST:
            raise ConfigError(f"expression: {str(node)[:40]!r} is not a finite number, variable or known operation")


def evaluate(tree: Any, variables: Mapping[str, Any]) -> Array:
    """Evaluates a tree that has passed `check`, elementwise in ``variables``."""
    if isinstance(tree, str):
        return variables[tree]
    if isinstance(tree, list):
        return OPERATIONS[tree[0]][1](*(evaluate(argument, variables) for argument in tree[1:]))
    return jnp.asarray(tree, jnp.float32)


INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
"""Operations that `in_words` writes between their arguments."""


def in_words(tree: Any) -> str:
    """Writes a tree as a formula in infix notation, such as ``tanh((2 * advantage))``."""
    if isinstance(tree, str):
        return tree
    if not isinstance(tree, list):
        return f"{tree:.4g}"
    head, *arguments = tree
    texts = [in_words(argument) for argument in arguments]
    return f"({texts[0]} {INFIX[head]} {texts[1]})" if head in INFIX else f"{head}({', '.join(texts)})"
