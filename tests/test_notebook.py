"""The page on notebooks, run as a notebook: what each cell shows."""

import re
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
PAGE = Path(__file__).parent.parent / "docs" / "notebook.md"
CELLS = re.findall(r"```(?:python|sh)\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """The cells with what they show, of trainings at small sizes."""
    folder = tmp_path_factory.mktemp("notebook")
    small = {
        "total_steps=50_000": "total_steps=4096, num_envs=4",
        "every=20": "every=2",
        "=20, overwrite": "=2, overwrite",
    }
    made = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    for cell in made:
        for long, short in small.items():
            cell.source = cell.source.replace(long, short)
    book = nbformat.v4.new_notebook(cells=made)
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.source.strip(): cell.outputs for cell in made}


def shown(cells, start):
    """What the cell that begins or ends in a text shows, by type; the text of streams under ``stream``."""
    outputs = next(found for source, found in cells.items() if source.startswith(start) or source.endswith(start))
    texts = {"stream": "".join(each.text for each in outputs if each.output_type == "stream")}
    return {kind: value for each in outputs for kind, value in each.get("data", {}).items()} | texts


@pytest.mark.rest
def test_every_cell_of_the_page_shows_what_it_should(cells):
    training = shown(cells, "result = purerl.train_in_chunks")
    assert training["text/plain"].startswith("Result(TrainState(") and "eval_return" in training["text/plain"]
    assert 5 < float(shown(cells, "purerl.means")["text/plain"]) < 500
    for figure in ("purerl.plot(result.metrics)", 'purerl.plot({"one agent"', "rates = ["):
        assert shown(cells, figure)["image/png"]
    assert "count" in shown(cells, "keys = ")["text/plain"]
    assert len(eval(shown(cells, 'purerl.save("runs/notebook"')["text/plain"])) == 8
    assert "learning_rate" in shown(cells, "!purerl compare")["stream"]
    assert re.match(r"Acting\(agent \d of runs/notebook: ", shown(cells, "act = ")["text/plain"])
    assert shown(cells, "obs = ")["text/plain"] in ("np.int32(0)", "np.int32(1)")
    assert "film.gif" in shown(cells, "!purerl render")["stream"]
    assert shown(cells, "from IPython.display")["image/gif"]
    assert not any(each.output_type == "error" for outputs in cells.values() for each in outputs)
