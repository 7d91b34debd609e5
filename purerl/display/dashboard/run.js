// One run, and several compared.
"use strict";

const NAMES = { episode_return: "Episode return", fitness: "Fitness" };
const FIRST = ["episode_return", "episode_return.0.5", "fitness", "eval_return", "loss", "entropy", "approximate_kl", "explained_variance", "grad_norm"];

function ordered(metrics) {
  const rank = (name) => (FIRST.indexOf(name) < 0 ? FIRST.length : FIRST.indexOf(name));
  const covered = (name) => metrics.includes("episode_return") && name.startsWith("episode_return.");
  return [...metrics].filter((name) => !covered(name)).sort((a, b) => rank(a) - rank(b));
}

function configuration(run, group) {
  const values = Object.entries(run.swept).map(([name, column]) => `${name} ${short(column[group])}`);
  return values.join(", ") || `configuration ${group}`;
}

const seriesOf = (found, name, colour) =>
  found.groups.map((group, i) => ({ ...group, x: found.x, name: name(group.group), colour: colour + i }));

const overOf = (found) => (found.over === "env_steps" ? "frames of each agent" : found.over);

function table(names, rows) {
  const numeric = (cell) => typeof cell === "number";
  const cell = (tag, value) => make(tag, { className: numeric(value) ? "number" : "" }, numeric(value) ? short(value) : value ?? "–");
  const head = make("tr", {}, names.map((name, i) => make("th", { className: rows.length && numeric(rows[0][i]) ? "number" : "" }, name)));
  return make("div", { className: "scroll" }, make("table", {}, make("thead", {}, head),
    make("tbody", {}, rows.map((each) => make("tr", {}, each.map((value) => cell("td", value)))))));
}

const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

const pairs = (fields) =>
  make("div", { className: "scroll" }, make("table", {}, make("tbody", {}, Object.entries(fields || {}).map(([name, value]) =>
    make("tr", {}, make("td", { className: "dim" }, name), make("td", {}, make("code", {}, written(value))))))));

const card = (title, ...content) => make("section", { className: "card" }, make("h2", {}, title), ...content);

const tile = (value, told) => make("div", { className: "tile" }, make("div", { className: "value" }, value), make("div", { className: "small" }, told));

const address = (run, name) => `/file?${new URLSearchParams({ path: run.path, name, at: run.changed })}`;

function film(run, name) {
  const caption = make("figcaption", {}, name);
  if (name.endsWith(".mp4")) return make("figure", {}, make("video", { src: address(run, name), controls: true, loop: true, muted: true }), caption);
  if (name.endsWith(".html")) return make("figure", {}, make("iframe", { src: address(run, name), sandbox: "allow-scripts", title: name }), caption);
  return make("figure", {}, make("img", { src: address(run, name), alt: `film ${name}` }), caption);
}

function tiles(run, now) {
  const dead = run.results.filter((each) => !each.alive).length;
  const interval = run.summary.return_iqm;
  const told = interval ? `interquartile mean, 95 % in [${short(interval.low)}, ${short(interval.high)}]` : "";
  const score = run.kind === "evolve" ? "fitness" : run.return === null ? "latest return, median agent" : "return, mean of agents";
  const rate = speed(run, now);
  return [
    tile(short(result(run)), score), interval ? tile(short(interval.value), told) : null,
    tile(short(run.done), `of ${short(run.total)} ${unit(run)}`), tile(rate ? short(rate) : "–", `${unit(run)} a second`),
    tile(lasting(run.seconds), "of computing"),
    tile(`${run.members}`, `${named(run)}${dead ? `, ${dead} died` : ""}`),
  ];
}

function details(run) {
  const parts = [];
  if (run.films.length) parts.push(card("Films", run.films.map((name) => film(run, name))));
  if (run.learned.length) {
    parts.push(card("Learned functions", run.learned.map((each) => make("div", {}, make("p", {}, make("strong", {}, each.name), ` ${each.socket || each.problem}`),
      each.words ? make("pre", {}, make("code", {}, each.words)) : "", each.card ? pairs(each.card) : ""))));
  }
  if (run.pictures.length) {
    parts.push(card("Pictures", run.pictures.map((name) => make("figure", {}, make("img", { src: address(run, name), alt: name }), make("figcaption", {}, name)))));
  }
  if (run.sweep.length) {
    const swept = Object.keys(run.swept);
    parts.push(card("Ranking", table(["rank", ...swept, "IQM", "low", "high"],
      run.sweep.map((each, i) => [i + 1, ...swept.map((name) => each[name]), each.value, each.low, each.high]))));
  }
  if (run.results.length) {
    const several = run.configurations > 1;
    const fate = (each) => !each.alive ? "✕ died" : each.stopped_at ? `stopped at ${each.stopped_at.toLocaleString()} frames` : "alive";
    const cells = (each) => [...(several ? [each.config] : []), each.seed, each.return, each.std, each.length, fate(each)];
    parts.push(card("Members", table([...(several ? ["config"] : []), "seed", "return", "std", "length", ""], run.results.map(cells))));
  }
  parts.push(card("Configuration", pairs(run.config)));
  parts.push(card("Run", pairs({ ...run.settings, ...run.options })));
  if (run.history.length) parts.push(card("Changes", run.history.map((line) => make("p", {}, written(line)))));
  if (Object.keys(run.summary).length) parts.push(card("Summary", pairs(run.summary)));
  if (run.checkpoints.length) {
    parts.push(card("Checkpoints", table(["batch", "step", "MB", "written"],
      run.checkpoints.map((each) => [each.batch, each.step, each.bytes / 1e6, new Date(each.changed * 1000).toLocaleString()]))));
  }
  return parts;
}

async function one(path) {
  const head = make("div");
  const curves = make("div");
  const more = make("div", { className: "columns" });
  let seen = "";
  main.replaceChildren(head, curves, more);
  const update = async () => {
    const run = await ask("/api/run", { path });
    const now = Date.now() / 1000;
    if (!run.metrics) {
      head.replaceChildren(make("h1", {}, run.name), status(run), make("p", {}, run.problem));
      return;
    }
    document.getElementById("folder").textContent = run.folder;
    head.replaceChildren(make("a", { className: "small", href: "#/" }, "← all runs"), make("div", { className: "head" }, make("h1", {}, run.name || "this run"), kindOf(run), status(run)),
      make("div", { className: "dim" }, `${run.socket ? `${run.socket} of ` : ""}${run.algo} on ${run.env}`),
      make("div", { className: "tiles" }, tiles(run, now)), make("div", {}, progress(run, now)));
    const state = JSON.stringify([run.changed, run.status, run.films, run.pictures, run.checkpoints]);
    if (state === seen) return;
    seen = state;
    const metrics = ordered(run.metrics);
    const found = await Promise.all(metrics.map((name) => ask("/api/curve", { path, metric: name })));
    const name = (group) => (group === null ? run.name : configuration(run, group));
    const drawn = found.map((each, i) => {
      const big = i === 0;
      const size = big ? { width: 1100, height: 330 } : { width: 420, height: 190 };
      const told = NAMES[metrics[i]] || metrics[i].replaceAll("_", " ");
      return chart({ title: told, series: seriesOf(each, name, 0), over: overOf(each), legend: big, ...size });
    });
    const first = found[0];
    const band = first && first.groups.some((group) => group.size > 1) ? "Line: interquartile mean over seeds; band: quartiles." : "";
    const left = first && first.left_out ? ` ${first.left_out} configurations with lower curves are not drawn.` : "";
    curves.replaceChildren(make("section", { className: "card" }, drawn[0] || make("p", { className: "hint" }, "No curve yet."),
      make("p", { className: "small" }, band + left)),
      make("section", { className: "card" }, make("div", { className: "charts" }, drawn.slice(1))));
    more.replaceChildren(...details(run));
  };
  await update();
  return update;
}

// ---------------------------------------------------------------- several runs

let metric = "episode_return";

async function compared(paths) {
  const pick = make("select", { "aria-label": "what to compare" });
  const body = make("div");
  let seen = "";
  let offered = "";
  const update = async (again = false) => {
    const runs = await Promise.all(paths.map((path) => ask("/api/run", { path })));
    const state = JSON.stringify(runs.map((run) => [run.changed, run.status]));
    if (state === seen && again !== true) return;
    seen = state;
    const names = ordered([...new Set(runs.flatMap((run) => run.metrics || []))]);
    const value = names.includes(metric) ? metric : names[0];
    if (names.join("\n") !== offered) {
      offered = names.join("\n");
      pick.replaceChildren(...names.map((name) => make("option", { value: name }, name.replaceAll("_", " "))));
    }
    pick.value = value;
    const series = [];
    let over = "";
    for (const run of runs.filter((each) => (each.metrics || []).includes(value))) {
      const found = await ask("/api/curve", { path: run.path, metric: value });
      over = overOf(found);
      const named = (group) => (group === null ? run.name : `${run.name}: ${configuration(run, group)}`);
      series.push(...seriesOf(found, named, series.length).map((each) => ({ ...each, lines: [] })));
    }
    const rows = runs.map((run) => {
      const interval = run.summary && run.summary.return_iqm;
      return [run.name, run.algo, run.env, run.members, result(run), interval ? `${short(interval.value)} [${short(interval.low)}, ${short(interval.high)}]` : "–",
        run.done, run.speed, run.status];
    });
    body.replaceChildren(
      make("section", { className: "card" }, chart({ series, over, width: 1100, height: 420, title: value.replaceAll("_", " ") }),
        make("p", { className: "small" }, "Line: interquartile mean over seeds; band: quartiles.")),
      card("Results", table(["run", "algorithm", "environment", "agents", "return", "IQM, 95 % interval", "frames", "frames/s", ""], rows)),
      card("What differs", differences(runs)));
  };
  pick.addEventListener("change", () => { metric = pick.value; update(true); });
  const back = make("a", { className: "small", href: "#/" }, "← all runs");
  main.replaceChildren(back, make("div", { className: "bar" }, make("h1", {}, `${paths.length} runs compared`), pick), body);
  await update();
  return update;
}

/** The settings in which runs differ, one a row. */
function differences(runs) {
  const settings = runs.map((run) => ({ algo: run.algo, env: run.env, ...(run.settings || {}).env_params, ...run.config }));
  const names = [...new Set(settings.flatMap(Object.keys))];
  const differ = names.filter((name) => new Set(settings.map((each) => JSON.stringify(each[name]))).size > 1);
  if (!differ.length) return make("p", { className: "hint" }, "Nothing but the seeds.");
  return table(["", ...runs.map((run) => run.name)], differ.map((name) => [name, ...settings.map((each) => (each[name] === undefined ? "–" : written(each[name])))]));
}
