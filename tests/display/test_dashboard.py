"""The page on runs: what it tells over HTTP, what it refuses, and what a browser shows of it."""

import contextlib
import itertools
import json
import os
import shutil
import threading
import tracemalloc
from urllib.parse import urlencode

import browser
import numpy as np
import pytest
from serving import asking, served

from purerl import cli
from purerl.display.dashboard.server import SCRIPTS, Missing
from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.learned import artefacts
from purerl.runs.describing.run_directory import LOCK, lock
from purerl.runs.reading import overview
from purerl.store import log

NASTY = "<img src=x onerror=alert(1)>"


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def returns(seed, i):
    return 10.0 * i + seed


def write_run(directory, command="train", seeds=(0, 1, 2, 3), iterations=10, env="CartPole-v1", **fields):
    """A run directory of ``iterations`` of 20, as a run may have written it."""
    directory.mkdir(parents=True)
    config = {"total_steps": 2000, "learning_rate": 0.01}
    described = {"format": 1, "command": command, "algo": "ppo", "env": env, "env_params": {}, "seeds": list(seeds)}
    described |= {"config": config, "swept": {}, "learned": {}, "datasets": {}, "options": {}, "history": [], **fields}
    (directory / "config.json").write_text(json.dumps(described))
    more(directory, seeds, range(1, iterations + 1))
    return directory


def more(directory, seeds, iterations):
    """Adds iterations to the logs of a run."""
    with open(directory / "metrics.jsonl", "a") as metrics, open(directory / "quantiles.jsonl", "a") as quantiles:
        for i in iterations:
            each = [returns(seed, i) for seed in seeds]
            about = {"iteration": i, "env_steps": 100 * i}
            metrics.write(
                lines({**about, "seed": s, "episode_return": r, "loss": None} for s, r in zip(seeds, each, strict=True))
            )
            middle = {"iqm": float(aggregates.iqm(np.array(each)[:, None]))}
            quantiles.write(lines([{**about, "first_member": 0, "alive": len(seeds), "episode_return": middle}]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("dashboard") / "runs"
    write_run(root / "deep" / "one")
    write_run(root / "two", seeds=(0,), algo="dqn")
    write_run(root / NASTY, env=NASTY)
    (root / "two" / "summary.json").write_text(
        json.dumps(
            {"status": "completed", "alive_per_seed": [True], "return_per_seed": [7.5], "return_iqm": {"value": 7.5}}
        )
    )
    (root / "two" / "film.gif").write_bytes(b"GIF89a")
    (root / "two" / "film.html").write_text("<script>fetch('/api/runs')</script>")
    (root / "two" / "notes.txt").write_text("mine")
    closed = artefacts.to_json(artefacts.of_expression("value-loss", ["square", "error"], {}))
    write_run(root / "search", command="evolve", socket="value-loss", envs=["CartPole-v1"], generations=4)
    (root / "search" / "closed.json").write_text(json.dumps(closed))
    (root / "search" / "generations.jsonl").write_text(
        lines({"generation": g, "frames": 64 * g, "fitness": 5.0 * g} for g in (1, 2))
    )
    write_run(root / "broken")
    (root / "broken" / "config.json").write_text("{")
    (root.parent / "outside").mkdir()
    write_run(root.parent / "outside" / "secret")
    (root / "link").symlink_to(root.parent / "outside" / "secret")
    (root / "two" / "stolen.png").symlink_to(root.parent / "outside" / "secret" / "config.json")
    return root


@pytest.fixture(scope="module")
def site(folder):
    with served(overview.answers(folder)) as serving:
        yield asking(serving)


def test_it_is_served_to_this_machine_alone(site):
    assert site.server.server_address[0] == "127.0.0.1"
    assert site.ask("/").status == 200
    assert site.ask("/", host=f"localhost:{site.server.server_address[1]}").status == 200
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:80", ""):
        assert site.ask("/api/runs", host=host).status == 403, host
    assert site.ask("/api/runs", Sec_Fetch_Site="cross-site").status == 403
    assert site.ask("/api/runs", Sec_Fetch_Site="same-origin").status == 200
    for method in ("POST", "PUT", "DELETE"):
        assert site.ask("/api/runs", method).status == 501


def test_the_page_loads_nothing_from_elsewhere(site):
    page = site.ask("/")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    for name in (*SCRIPTS, "page.css", "icon.svg"):
        result = site.ask(f"/{name}")
        assert result.status == 200
        text = result.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", "").replace('"/"', "") or "http" not in text
        assert "innerHTML" not in text
    assert site.ask("/nothing").status == 404


def test_the_list_tells_every_run(site):
    results = {run["path"]: run for run in site.get("runs")["runs"]}
    assert set(results) == {"deep/one", "two", NASTY, "search", "broken"}
    one, two, search = results["deep/one"], results["two"], results["search"]
    assert (one["kind"], one["members"], one["status"]) == ("population", 4, "stopped")
    assert (one["done"], one["total"], one["latest"]) == (4 * 1000, 4 * 2000, 101.5)
    assert (two["kind"], two["status"], two["return"], two["algo"]) == ("train", "completed", 7.5, "dqn")
    assert (search["kind"], search["done"], search["total"], search["latest"]) == ("evolve", 2, 4, 10.0)
    assert results["broken"]["status"] == "damaged"
    assert results[NASTY]["env"] == NASTY


def test_a_run_tells_its_parts(site):
    two, search = site.get("run", path="two"), site.get("run", path="search")
    assert two["films"] == ["film.gif", "film.html"] and two["pictures"] == []
    assert two["config"] == {"total_steps": 2000, "learning_rate": 0.01}
    assert two["results"][0]["return"] == 7.5 and two["results"][0]["alive"]
    assert "episode_return" in two["metrics"] and "seed" not in two["metrics"]
    assert search["learned"][0]["words"] == "square(error)"


def test_a_sweep_is_told_by_its_best_configuration_and_its_ranking(tmp_path):
    directory = write_run(tmp_path / "swept", "sweep", seeds=(0, 1), swept={"gamma": [0.9, 0.99]})
    row = lambda c, returns: {"gamma": 0.9, "config": c, "value": sum(returns) / 2, "returns": returns}
    ranked = [row(1, [7.0, 9.0]), row(0, [1.0, 3.0]), "x", {"returns": {"a": 1}}]
    (directory / "sweep.json").write_text(json.dumps({"ranked": ranked}))
    summary = {"status": "completed", "return_mean": 5.0, "return_iqm": {"value": 5.0}, "alive_per_seed": [True] * 4}
    (directory / "summary.json").write_text(json.dumps(summary))
    page = overview.answers(tmp_path)
    [listed], run = page.runs()["runs"], page.run("swept")
    assert (listed["return"], listed["spark"], listed["latest"]) == (8.0, [], None)
    assert [each["config"] for each in run["sweep"]] == [1, 0, 0] and run["sweep"][0]["returns"] == [7, 9]
    assert run["sweep"][2]["returns"] == [] and not {"return_mean", "return_iqm"} & set(run["summary"])


def test_a_search_tells_its_report(tmp_path):
    directory = write_run(tmp_path / "search", "evolve")
    of = lambda value: {"value": value, "low": value - 1, "high": value + 1}
    estimates = {"fitness_iqm": of(5.0), "baseline_iqm": of(3.0), "iqm_difference": of(2.0)}
    about = {"env": "CartPole-v1", "trained_on": False, "baseline": "L2", "tuned": {"value_coef": 0.25}}
    rows = [{**about, **estimates}, {"env": "x", "fitness_iqm": {"value": 4.0}}, 7]
    (directory / "report.json").write_text(json.dumps({"rows": rows}))
    (directory / "closed-report.json").write_text(json.dumps({"rows": [{"tuned": "x", "fitness_iqm": 3}]}))
    whole, part, closed = overview.answers(tmp_path).run("search")["reports"]
    assert whole["held_out"] and whole["difference"] == of(2.0) and whole["tuned"] == "value_coef 0.25"
    assert part["evolved"] == {"value": 4.0, "low": None, "high": None}
    assert (closed["of"], closed["evolved"]["value"]) == ("closed", None)


def test_a_curve_has_the_interquartile_mean_of_its_seeds(site, tmp_path):
    """With its interval from five seeds on; of fewer each seed has its line."""
    result = site.get("curve", path="deep/one", metric="episode_return")
    [line] = result["lines"]
    assert (result["title"], result["over"], result["told"]) == ("return", "frames", "")
    assert line["x"] == [100.0 * i for i in range(1, 11)] and line["size"] == 4
    assert (line["name"], line["label"]) == ("one", "one (4 agents)")
    each = np.array([[returns(seed, i) for seed in range(6)] for i in range(1, 11)])
    np.testing.assert_allclose(line["mid"], aggregates.iqm(each[:, :4, None]))
    assert line["low"] == line["high"] == [None] * 10
    np.testing.assert_array_equal(line["lines"], each[:, :4].T)
    write_run(tmp_path / "six", seeds=range(6))
    [line] = overview.answers(tmp_path).curve(["six"], "episode_return")["lines"]
    np.testing.assert_allclose([line["mid"], line["low"], line["high"]], aggregates.bands(each.T))
    assert line["lines"] == []
    assert site.ask("/api/curve?path=deep/one&metric=nothing").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../outside/secret",
        "two/..",
        "two/../two",
        "/etc",
        "//two",
        "./two",
        "two/",
        "link",
        "no",
        "two\0",
        "deep",
    ],
)
def test_paths_outside_of_the_folder_are_not_there(site, path):
    for place in ("run", "curve", "file"):
        target = f"/{'' if place == 'file' else 'api/'}{place}?" + urlencode(
            {"path": path, "name": "config.json", "metric": "episode_return"}
        )
        assert site.ask(target).status == 404, target


def test_files_are_films_and_pictures_of_a_run(site):
    film = site.ask("/file?path=two&name=film.gif")
    assert (film.status, film.headers["Content-Type"], film.body) == (200, "image/gif", b"GIF89a")
    page = site.ask("/file?path=two&name=film.html").headers["Content-Security-Policy"]
    assert page.startswith("sandbox allow-scripts;") and "connect-src" not in page and "default-src 'none'" in page
    for name in ("notes.txt", "config.json", "../two/film.gif", "stolen.png", "none.gif", ""):
        assert site.ask("/file?" + urlencode({"path": "two", "name": name})).status == 404, name


@pytest.mark.parametrize("weird", [None, 7, -1e300, "x", [], [None], [[{}]], {}, {"a": None}, {"a": [1]}, True])
def test_whatever_a_file_holds_the_page_goes_on(weird, tmp_path):
    fields = ["algo", "env", "env_params", "envs", "seeds", "config", "swept", "learned", "socket", "population"]
    fields += ["programs", "strategy", "initial", "lifetimes"]
    for command in ("train", "sweep", "evolve"):
        for field in fields:
            directory = write_run(tmp_path / command / field, command)
            described = json.loads((directory / "config.json").read_text())
            (directory / "config.json").write_text(json.dumps({**described, field: weird}))
            summary = {"status": weird, "alive_per_seed": [weird] * 3, "return_per_seed": weird, "return_iqm": weird}
            seats = {f"seat_{kind}_per_seed": [weird, [weird] * 2, [0.5, weird]] for kind in ("return", "won")}
            summary |= {"alive_per_seed": [True] * 3, "seats": ["0", weird], **seats} if field == "env" else {}
            films = {"film.gif": {"bytes": 6, "agent": weird, "episodes": [weird, {"returns": [weird, 1]}]}}
            (directory / "film.gif").write_bytes(b"GIF89a")
            (directory / "films.json").write_text(json.dumps(films if field == "env" else {"film.gif": weird}))
            (directory / "summary.json").write_text(json.dumps(summary))
            for name in ("sweep.json", "closed.json", "artefact.json"):
                (directory / name).write_text(json.dumps({"ranked": weird, "format": 1, "card": weird}))
            (directory / "checkpoints" / "\u00b2").mkdir(parents=True)
            (directory / LOCK).write_text(str(weird))
    page = overview.answers(tmp_path)
    runs = page.runs()["runs"]
    assert len(runs) == 3 * len(fields)
    for run in runs:
        json.dumps(page.run(run["path"]))
        with contextlib.suppress(ConfigError, Missing):
            json.dumps(page.curve([run["path"]], "episode_return"))


def test_a_log_is_read_on_and_never_half(tmp_path):
    grown = log.Followed(tmp_path / "log")
    (tmp_path / "log").write_text('{"a": 1, "b": {"c": 2}}\nno JSON\n{"a": 3')
    np.testing.assert_array_equal(grown.read()["a"], [1])
    with open(tmp_path / "log", "a") as file:
        file.write(', "new": 5}\n[1]\n{"a": null, "b": "text"}\n')
    result = grown.read()
    np.testing.assert_array_equal(result["a"], [1, 3, np.nan])
    np.testing.assert_array_equal(result["b.c"], [2, np.nan, np.nan])
    np.testing.assert_array_equal(result["new"], [np.nan, 5, np.nan])
    (tmp_path / "log").write_text('{"a": 9}\n')
    np.testing.assert_array_equal(grown.read()["a"], [9])
    with open(tmp_path / "log", "r+") as file:  # replaced in place by a longer one
        file.write('{"a": 7}\n{"a": 8}\n')
    np.testing.assert_array_equal(grown.read()["a"], [7, 8])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        log.Followed(tmp_path / "pipe").read()


@pytest.mark.rest
def test_a_log_takes_memory_in_proportion_to_its_size(tmp_path):
    """Many lines that hold little, and one with many names, make no table of all names in all lines."""
    directory = write_run(tmp_path / "one", iterations=0)
    rows = 50_000
    few, many = [{"a": 1}], [{f"name{i}": i for i in range(log.MOST_COLUMNS - 1)}]
    (directory / "metrics.jsonl").write_text(lines(few) * rows + "{}\n" * rows + lines(many + few))
    size = (directory / "metrics.jsonl").stat().st_size
    page = overview.answers(tmp_path)
    tracemalloc.start()
    try:
        assert len(page.run("one")["metrics"]) == log.MOST_COLUMNS
        assert page.curve(["one"], "name7")["lines"] == []
        assert tracemalloc.get_traced_memory()[1] < 10 * size
    finally:
        tracemalloc.stop()
    result = log.Followed(directory / "metrics.jsonl").read()
    assert result["a"].shape == result["name7"].shape == (rows + 2,)
    assert result["name7"][rows] == 7 and np.isfinite(result["name7"]).sum() == 1 and np.nansum(result["a"]) == rows + 1


def test_a_line_too_long_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "MOST_IN_LINE", 64)  # a bound that a test can reach
    long = json.dumps({"a": 2, "text": 200 * "x"})
    (tmp_path / "log").write_text(lines([{"a": 1}]) + long + "\n" + lines([{"a": 3}]) + long)
    grown = log.Followed(tmp_path / "log")
    np.testing.assert_array_equal(grown.read()["a"], [1, 3])
    with open(tmp_path / "log", "a") as file:
        file.write("\n" + lines([{"a": 4}]))
    np.testing.assert_array_equal(grown.read()["a"], [1, 3, 4])


def test_columns_stay_as_they_were_read(tmp_path):
    grown = log.Followed(tmp_path / "log")
    (tmp_path / "log").write_text(lines([{"a": 1}, {"b": 2}]))
    first = grown.read()
    with open(tmp_path / "log", "a") as file:
        file.write(lines([{"a": 3, "c": 4}]))
    second = grown.read()
    assert list(first) == ["a", "b"] and list(second) == ["a", "b", "c"]
    np.testing.assert_array_equal(first["a"], [1, np.nan])
    np.testing.assert_array_equal(second["a"], [1, np.nan, 3])


def test_one_log_keeps_no_other_waiting(tmp_path):
    """A log that is being read holds up its own readers alone."""
    for name in ("one", "two"):
        write_run(tmp_path / name)
    page = overview.answers(tmp_path)
    parsed, reached, go_on = log.parsed, threading.Event(), threading.Event()

    def waits(line):
        if threading.current_thread() is slow:
            reached.set()
            assert go_on.wait(60)
        return parsed(line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "parsed", waits)
        slow = threading.Thread(target=page.curve, args=(["one"], "episode_return"), daemon=True)
        quick = threading.Thread(target=page.curve, args=(["two"], "episode_return"), daemon=True)
        slow.start()
        assert reached.wait(60)
        quick.start()
        quick.join(10)
        held_up = quick.is_alive()
        go_on.set()
        slow.join()
    assert not held_up


def write_programs(root):
    """A sweep over two settings that shape programs and one that does not, as it is when its second program began."""
    programs = {"num_envs": [4, 8], "hidden_sizes": [[16], [32, 32]]}
    swept = {"learning_rate": [1e-3, 3e-3]}
    directory = write_run(root / "shapes", "sweep", seeds=(0, 1), iterations=0, swept=swept, programs=programs)
    for k in (0, 1):
        config = {"total_steps": 2000, "learning_rate": 0.01, "num_envs": 4 + 4 * k}
        part = write_run(directory / str(k), "sweep", seeds=(0, 1), iterations=0, swept=swept, config=config)
        rows = [
            {"config": c, "seed": s, "env_steps": 100 * (k + 1) * i, "episode_return": 100.0 * k + 10 * c + s + i}
            for i in (1, 2)
            for c in (0, 1)
            for s in (0, 1)
        ]
        (part / "metrics.jsonl").write_text(lines(rows))
    return directory


def test_a_sweep_of_programs_is_one_page_with_all_its_curves(tmp_path):
    """Every swept setting stands in the ranking, the header and the names of curves, once; programs are no runs."""
    directory = write_programs(tmp_path)
    place = lambda c, value: {"config": c, "program": c // 2, "value": value, "returns": [value, value]}
    own = {"num_envs": 8, "hidden_sizes": "32 32", "learning_rate": 3e-3}
    ranked = [{**place(3, 9.0), **own}, {**place(0, 5.0), **own, "num_envs": 4}]
    (directory / "sweep.json").write_text(json.dumps({"ranked": ranked}))
    alive = {"alive_per_seed": [True] * 8, "return_per_seed": list(range(8))}
    (directory / "summary.json").write_text(json.dumps({"status": "completed", **alive}))
    page = overview.answers(tmp_path)
    assert [(run["path"], run["configurations"], run["members"]) for run in page.runs()["runs"]] == [("shapes", 4, 8)]
    run = page.run("shapes")
    assert run["swept"] == {"num_envs": "4, 8", "hidden_sizes": "16, 32 32", "learning_rate": "0.001, 0.003"}
    assert [row["values"] for row in run["sweep"]] == [["8", "32 32", "0.003"], ["4", "32 32", "0.003"]]
    assert [row["agents"] for row in run["sweep"]] == ["6-7", "0-1"]
    assert [(row["agent"], row["config"], row["seed"]) for row in run["results"]][-2:] == [(6, 3, 0), (7, 3, 1)]
    assert [row["settings"] for row in run["programs"]] == [
        "num_envs 4, hidden_sizes 16",
        "num_envs 8, hidden_sizes 32 32",
    ]
    assert page.run("shapes/1")["name"] == "shapes/1"
    result = page.curve(["shapes"], "episode_return")
    assert result["offered"] == ["learning_rate", "num_envs", "hidden_sizes"] and result["told"] == ""
    names = [line["name"] for line in result["lines"]]
    assert names[0] == "num_envs 8, hidden_sizes 32 32, learning_rate 0.003" and len(set(names)) == 4
    best = result["lines"][0]
    assert best["x"] == [200, 400] and best["lines"] == [[111, 112], [112, 113]] and best["mid"] == [111.5, 112.5]
    joined = page.curve(["shapes"], "episode_return", "num_envs")
    assert joined["told"] == "4 configurations, one curve for each value of num_envs"
    assert [line["label"] for line in joined["lines"]] == [
        "num_envs 4 (2 configurations, 4 agents)",
        "num_envs 8 (2 configurations, 4 agents)",
    ]
    # of 101, 102, 111, 112 at the first point without the lowest and the highest: (102 + 111) / 2
    assert joined["lines"][1]["mid"] == [106.5, 107.5]


def test_a_program_that_has_not_begun_is_told(tmp_path):
    directory = write_programs(tmp_path)
    shutil.rmtree(directory / "1")
    page = overview.answers(tmp_path)
    assert [row["status"] for row in page.run("shapes")["programs"]] == ["stopped", "waiting"]
    assert [line["size"] for line in page.curve(["shapes"], "episode_return")["lines"]] == [2, 2]


def test_runs_that_are_compared_have_one_figure(tmp_path):
    """More than eight runs have a curve for each value of what explains most of their last values."""
    for rate, gamma in itertools.product((1e-3, 1e-2, 1e-1), (0.9, 0.95, 0.99)):
        config = {"total_steps": 2000, "learning_rate": rate, "gamma": gamma}
        directory = write_run(tmp_path / f"{rate:g}-{gamma:g}", config=config, iterations=0)
        rows = [{"seed": s, "env_steps": 100, "episode_return": 1000 * rate + gamma} for s in (0, 1)]
        (directory / "metrics.jsonl").write_text(lines(rows))
    page = overview.answers(tmp_path)
    paths = sorted(run["path"] for run in page.runs()["runs"])
    result = page.curve(paths, "episode_return")
    assert [line["name"] for line in result["lines"]] == [f"learning_rate {x}" for x in ("0.001", "0.01", "0.1")]
    assert result["setting"] == "learning_rate" and result["offered"] == ["learning_rate", "gamma", "run"]
    few = page.curve(paths[:2], "episode_return")
    assert [line["name"] for line in few["lines"]] == paths[:2] and few["told"] == ""


def test_a_log_too_large_to_draw_hides_no_other(tmp_path, monkeypatch):
    directory = write_run(tmp_path / "one", iterations=100)
    monkeypatch.setattr(log, "MOST_BYTES", (directory / "quantiles.jsonl").stat().st_size)
    page = overview.answers(tmp_path)
    assert page.run("one")["metrics"] == ["alive", "episode_return.iqm"]
    assert page.curve(["one"], "episode_return.iqm")["lines"][0]["mid"][-1] == 1001.5
    with pytest.raises(ConfigError, match="too large to draw"):
        page.curve(["one"], "loss")


def test_a_log_of_odd_numbers_breaks_no_list(tmp_path):
    for command, name, row in (
        ("evolve", "generations", {"generation": 1}),
        ("train", "quantiles", {"first_member": 0}),
        ("train", "quantiles", {"first_member": 0, "env_steps": 1e300}),
    ):
        directory = write_run(tmp_path / f"{command}{len(row)}", command, seeds=range(100_000), iterations=0)
        (directory / f"{name}.jsonl").write_text(lines([{**row, "env_steps": 5}, row, {"fitness": 1}]))
    assert all(run["done"] >= 0 for run in overview.answers(tmp_path).runs()["runs"])


def test_a_name_that_is_no_text_breaks_no_list(tmp_path):
    write_run(tmp_path / "one")
    write_run(tmp_path / os.fsdecode(b"\xff"))
    assert [run["path"] for run in overview.answers(tmp_path).runs()["runs"]] == ["one"]


def test_who_hangs_up_is_not_told(site, capsys):
    for error, errors in ((ConnectionResetError, False), (KeyError, True)):
        try:
            raise error
        except error:
            site.server.handle_error(None, ("127.0.0.1", 1))
        assert (error.__name__ in capsys.readouterr().err) == errors


def test_bad_input(tmp_path, site, capsys):
    port = str(site.server.server_address[1])
    for args, words in (
        ([str(tmp_path / "no")], "not a directory"),
        ([str(tmp_path), "--port", port], f"port = {port}"),
    ):
        with pytest.raises(SystemExit) as stop:
            cli.main(["dashboard", *args])
        assert stop.value.code == 2 and words in capsys.readouterr().err


in_chromium = pytest.mark.skipif(browser.PATH is None, reason="there is no Chromium, which pip cannot install")


@in_chromium
def test_in_a_browser(site, folder):
    with browser.opened() as page:
        page.go(site.address)
        page.wait("document.querySelectorAll('.run').length === 5")
        assert page.js(f"document.body.innerText.includes({json.dumps(NASTY)})")
        assert page.js("document.querySelectorAll('img').length") == 0
        page.js("document.querySelector('a[href=\"#/run/deep%2Fone\"]').click()")
        page.wait("document.querySelectorAll('.chart').length === 1")  # of the loss there is none
        assert page.js("document.body.innerText.includes('Constant: alive 4.')")
        assert page.js("document.querySelectorAll('path.faint').length") == 4
        page.view(390, 844)
        page.wait("document.querySelector('.chart svg').viewBox.baseVal.width < 390")
        assert page.js("document.documentElement.scrollWidth") == 390
        page.view(1280, 900)
        page.wait("document.querySelector('.chart svg').viewBox.baseVal.width > 1000")
        before = page.js("document.querySelector('path.curve').getAttribute('d')")
        with lock(folder / "deep" / "one"):
            more(folder / "deep" / "one", range(4), range(11, 15))
            page.wait("document.querySelector('.status').textContent.includes('running')")
            page.wait("document.body.innerText.includes('5600 of 8000 frames')")
            page.wait(f"document.querySelector('path.curve').getAttribute('d') !== {json.dumps(before)}")
        low, high = page.js("extent([[0.3, 0.1 + 0.2]])")  # a constant, up to rounding: no axis without an end
        assert high - low > 0.01
        page.go(site.address + "#/")
        page.wait("document.querySelectorAll('.run input').length === 4")
        page.js("document.querySelector('select').focus()")
        more(folder / "two", (0,), range(11, 13))
        page.wait("document.body.innerText.includes('1200 of 1200 frames')")
        ticks = "[...document.querySelectorAll('.run input')].filter(x => /compare (one|two)/.test(x.ariaLabel))"
        page.js(f"{ticks}.forEach(x => x.click())")
        page.js("document.getElementById('compare').click()")
        page.wait("document.querySelectorAll('path.curve').length >= 2 && document.querySelectorAll('td').length > 10")
        assert page.js("document.body.innerText.includes('dqn')")
        page.go(site.address + "#/run/search")
        page.wait("document.body.innerText.includes('square(error)')")
        page.go(site.address + "file?path=two&name=film.html")
        reach = "fetch('/api/runs').then(() => 'reached', () => 'refused')"
        page.wait(f"location.pathname === '/file' && {reach}")
        assert page.js(reach) == "refused" and page.js("origin") == "null"
        page.errors.clear()  # those of the film
        page.go(site.address + "#/run/no")
        page.wait("document.body.innerText.includes('there is nothing here')")
        assert [error for error in page.errors if "404" not in str(error)] == []
    (folder / "deep" / "one" / LOCK).unlink()


ROWS = (
    "[...document.querySelectorAll('h2')].find(x => x.textContent === {title!r}).parentNode.querySelectorAll('{what}')"
)


def cells(page, title, what):
    """The texts of the cells of a card's table."""
    return page.js(f"[...{ROWS.format(title=title, what=what)}].map(x => x.textContent)")


def check_room(page, width):
    """Nothing lies beyond the window, and what is wider than its place can be scrolled to."""
    page.wait(f"document.documentElement.scrollWidth <= {width} && document.querySelectorAll('.chart svg').length")
    wide = "[...document.querySelectorAll('.card *')].filter(x => x.scrollWidth > x.clientWidth + 1 && x.clientWidth)"
    hidden = (
        f"{wide}.filter(x => !x.closest('.scroll') && !x.closest('svg') && getComputedStyle(x).display !== 'inline')"
    )
    assert page.js(f"{hidden}.map(x => x.outerHTML.slice(0, 80))") == []
    below = "document.querySelector('.legend').getBoundingClientRect().top >= "
    assert page.js(f"{below} document.querySelector('.chart svg').getBoundingClientRect().bottom - 1")


@in_chromium
def test_sweeps_and_a_search_in_a_browser(tmp_path):
    directory = write_programs(tmp_path)
    place = lambda c, value: {"config": c, "program": c // 2, "value": value, "returns": [value - 1, value + 1]}
    values = lambda c: {"num_envs": 4 + 4 * (c // 2), "hidden_sizes": ["16", "32 32"][c // 2], "learning_rate": 1e-3}
    ranked = [{**place(c, 40.0 - 10 * i), **values(c)} for i, c in enumerate((3, 0, 1, 2))]
    (directory / "sweep.json").write_text(json.dumps({"ranked": ranked}))
    alive = {"alive_per_seed": [True] * 8, "return_per_seed": list(range(8))}
    (directory / "summary.json").write_text(json.dumps({"status": "completed", **alive}))
    about = {"socket": "value-loss", "envs": ["CartPole-v1"], "generations": 4, "population": 8, "num_seeds": 1}
    search = write_run(
        tmp_path / "search", "evolve", iterations=0, strategy={"name": "Open_ES", "sigma": 0.04}, **about
    )
    row = lambda g: {"generation": g, "frames": 64 * g, "fitness": g, "fitness_best": 2 * g, "fitness_worst": 0.5 * g}
    (search / "generations.jsonl").write_text(lines(map(row, (1, 2, 3))))
    of = lambda value: {"value": value, "low": value - 1, "high": value + 1}
    compared = {"env": "CartPole-v1", "trained_on": False, "baseline": "L2", "tuned": {"value_coef": 0.25}}
    compared |= {"fitness_iqm": of(5.0), "baseline_iqm": of(3.0), "iqm_difference": of(2.0)}
    (search / "report.json").write_text(json.dumps({"rows": [compared]}))
    with served(overview.answers(tmp_path)) as serving, browser.opened() as page:
        for width in (1280, 390):
            page.view(width, 900)
            page.go("about:blank")
            page.go(f"{asking(serving).address}#/run/shapes")
            page.wait("document.querySelectorAll('.legend span').length === 4")
            check_room(page, width)
            names = ["rank", "return, IQM", "num_envs", "hidden_sizes", "learning_rate", "single seeds", "agents"]
            assert cells(page, "Ranking", "th") == names
            assert cells(page, "Ranking", "td")[:7] == ["1", "40", "8", "32 32", "0.001", "39, 41", "6-7"]
            assert cells(page, "Agents", "td")[-7:] == ["7", "3", "1", "7", "–", "–", "alive"]
            assert "num_envs 4, hidden_sizes 16" in cells(page, "Programs", "td")
            assert page.js("document.querySelector('.legend span').textContent") == (
                "num_envs 8, hidden_sizes 32 32, learning_rate 0.003 (2 agents)"
            )
            page.js("document.querySelector('select').value = 'num_envs'")
            page.js("document.querySelector('select').dispatchEvent(new Event('change'))")
            page.wait("document.querySelectorAll('.legend span').length === 2")
            assert page.js("document.body.innerText.includes('one curve for each value of num_envs.')")
            page.go(f"{asking(serving).address}#/run/search")
            page.wait("document.querySelectorAll('.legend span').length === 3")
            check_room(page, width)
            assert "8 candidates, each with 1 seed" in cells(page, "What it searched", "td")
            told = ["CartPole-v1 (held out)", "L2, value_coef 0.25", "better", "2 [1, 3]", "5 [4, 6]", "3 [2, 4]"]
            assert cells(page, "Held-out report", "td") == told
        page.go(f"{asking(serving).address}#/run/shapes")
        page.wait("document.querySelector('a[href=\"#/run/shapes%2F1\"]').click() || true")
        page.wait("document.querySelector('h1').textContent === 'shapes/1'")
        assert page.js("document.querySelector('a.small').textContent") == "← shapes"
        page.js("document.querySelector('a.small').click()")
        page.wait("document.querySelector('h1').textContent === 'shapes'")
        assert page.errors == []
