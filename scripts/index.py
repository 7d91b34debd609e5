"""Writes the table of algorithms in ``docs/algorithms/index.md``, from what each says of itself and its page.

    python scripts/index.py

What is written is all that stands between the lines `BEGIN` and `END` of that page;
``tests/algos/test_algorithm_checklist.py`` holds the page to it.
"""

import argparse
import re
import typing
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "docs" / "algorithms"
BEGIN, END = "<!-- scripts/index.py writes what follows -->", "<!-- and ends here -->"
KINDS = {"Discrete": "CartPole-v1", "Box": "Pendulum-v1", "trees": "probe/hybrid"}
TEAM = "TwoStep-v0"


def title(name: str) -> str:
    """The first words of a page's first sentence, which say what the algorithm is."""
    page = FOLDER / f"{name}.md"
    text = page.read_text().partition("\n\n")[2] if page.is_file() else ""
    return re.split(r"[,:.] ", text.replace("\n", " "), maxsplit=1)[0]


def source(name: str) -> str:
    """What an algorithm learns from."""
    from purerl.algos import ALGORITHMS
    from purerl.learners.parts.from_data import DataConfig

    algorithm = ALGORITHMS[name]
    if issubclass(algorithm.own_config, DataConfig):
        return "recorded play alone"
    result = "its own rollouts"
    if not is_on_policy(name):
        sequences = {"unroll", "unroll_steps"} & vars(algorithm.Config()).keys()
        result = "sequences from a replay" if sequences else "a replay"
    return f"{result}, and {', '.join(algorithm.required)}" if algorithm.required else result


def is_on_policy(name: str) -> bool:
    """Whether an algorithm learns from its own rollouts, each of which it then drops."""
    from purerl.algos import ALGORITHMS
    from purerl.learners.parts import settings
    from purerl.learners.wrappers import wrapper

    return settings.ON_POLICY in wrapper.offered(ALGORITHMS[name].own_config)


def row(name: str) -> str:
    """The line of an algorithm."""
    from purerl import envs
    from purerl.algos import ALGORITHMS

    algorithm = ALGORITHMS[name]
    config, hints = algorithm.Config(), typing.get_type_hints(algorithm.Config)
    actions = [kind for kind, env in KINDS.items() if not algorithm.problems(config, envs.make(env))]
    memories = typing.get_args(hints["memory"]) if "memory" in hints else ("none",)
    memory = "optional" if len(memories) > 1 else "none"
    memory = memory if "none" in memories else "always"
    agents = "one team" if algorithm.view(config, envs.make(TEAM)).num_agents == 1 else "one row each"
    return f"| [{name}]({name}.md) | {title(name)} | {source(name)} | {', '.join(actions)} | {memory} | {agents} |"


def table() -> str:
    """The lines of all algorithms."""
    from purerl.algos import ALGORITHMS

    head = "| page | name | learns from | actions | memory | several agents |\n|---|---|---|---|---|---|"
    return "\n".join([head, *map(row, ALGORITHMS)])


def written(text: str) -> str:
    """A page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)


if __name__ == "__main__":
    parser().parse_args()
    page = FOLDER / "index.md"
    page.write_text(written(page.read_text()))
