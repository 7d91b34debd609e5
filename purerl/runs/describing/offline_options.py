"""Options that a training from recorded play alone cannot have, because no episodes are played in it."""

from typing import Any

from purerl.learners.parts.from_data import DataConfig
from purerl.runs.describing import datasets, select_options
from purerl.runs.describing.datasets import HOST


def problems(options: Any, config: Any) -> list[str]:
    """Returns a line for each of ``options`` that needs episodes of the training, or an environment that is stepped.

    There is none if ``config`` is that of an algorithm which steps environments.
    """
    if not isinstance(config, DataConfig):
        return []
    why = "no episodes are played in a training from recorded play"
    lines = []
    if (select := select_options.kind(options)) != select_options.NONE:
        lines.append(f"select = {select!r}: {why}, by which agents are compared")
    if options.stop_at is not None and not options.eval_every:
        lines.append(f"stop_at = {options.stop_at!r}: {why}; give eval_every, so that evaluations decide")
    if options.keep_best:
        lines.append(f"keep_best = True: {why}, by which policies are compared")
    if options.shards > 1:
        lines.append(f"shards = {options.shards}: is not supported with recorded play")
    if options.processes and datasets.where(options) == HOST:
        lines.append(f"data_on = {HOST!r}: is not supported with processes")
    return lines
