// One run, and several compared.
"use strict";

const FIRST = ["won/0", "won/1", "drawn", "episode_return", "episode_return.iqm", "episode_return.0.5", "fitness", "eval_return", "loss", "entropy", "approximate_kl", "explained_variance", "grad_norm"];
const FEW = 5; // agents from which on an interval is told
const STATISTIC = "interquartile mean";
const FITNESS = { fitness: "mean of all trainings", fitness_best: "best candidate", fitness_worst: "worst candidate" };
const NAMES = { "artefact.json": "learned function:", "closed.json": "closed form, fitted to it:" };

function ordered(metrics) {
  const rank = (name) => (FIRST.indexOf(name) < 0 ? FIRST.length : FIRST.indexOf(name));
  const covered = (name) => metrics.includes("episode_return") && name.startsWith("episode_return.");
  return [...metrics].filter((name) => !covered(name)).sort((a, b) => rank(a) - rank(b));
}

/** The values of a configuration of a sweep, of a row of its ranking, in words. */
const configuration = (run, place) => Object.keys(run.swept).map((name, i) => `${name} ${place.values[i]}`).join(", ");

const seriesOf = (found) => found.lines.map((line, i) => ({ ...line, colour: i }));

/** The curves of a number of the runs at some paths; one for each value of a setting if there are many, or it is chosen. */
const curvesOf = (paths, metric, setting = "") =>
  ask("/api/curve", [...paths.map((path) => ["path", path]), ["metric", metric], ["setting", setting]]);

/** What chooses the setting by which curves are joined, and what they are. */
function joining(found, setting, choose) {
  if (!found.offered.length || (found.offered.length === 1 && !found.told)) return "";
  const pick = make("select", { ariaLabel: "what makes a curve" }, make("option", { value: "" }, "curves: automatic"),
    found.offered.map((name) => make("option", { value: name }, `a curve for each ${name}`)));
  pick.value = found.offered.includes(setting) ? setting : "";
  pick.addEventListener("change", () => choose(pick.value));
  return make("div", { className: "bar" }, pick, make("span", { className: "small" }, found.told ? `${found.told}.` : ""));
}

/** What the lines of a chart are, in words. */
function legend(series) {
  const several = series.filter((each) => each.size > 1);
  const told = several.length ? [`Line: ${STATISTIC} over agents`] : [];
  if (several.some((each) => each.size >= FEW)) told.push("band: its 95 % bootstrap interval");
  if (several.some((each) => each.lines.length)) told.push("faint: single agents");
  return told.length ? `${told.join("; ")}.` : "";
}

/** The one value that a curve has everywhere; null if it has several. */
function constant(found) {
  const values = found.lines.flatMap((line) => [...line.mid, ...line.lines.flat()]).filter((value) => value !== null);
  const close = (value) => Math.abs(value - values[0]) <= 1e-9 * Math.abs(values[0]);
  return values.length && values.every(close) ? values[0] : null;
}

/** The width that a chart has within a card of an element, in pixels, beside others of at least `least`. */
function widthIn(element, least = Infinity) {
  const gap = 14;
  const inside = Math.max(240, element.clientWidth - 34);
  const columns = Math.max(1, Math.floor((inside + gap) / (least + gap)));
  return (inside - gap * (columns - 1)) / columns;
}

const between = (estimate) => (estimate.low === null ? "" : ` [${short(estimate.low)}, ${short(estimate.high)}]`);

/** A table; the cells of a "lean" one are a line each, and a "stacked" one has a block for each row where there is little room. */
function table(names, rows, kind = "") {
  const numeric = (cell) => typeof cell === "number" || (typeof cell === "string" && cell !== "" && Number.isFinite(Number(cell)));
  const cell = (tag, value) => make(tag, { className: numeric(value) ? "number" : "" }, typeof value === "number" ? short(value) : value ?? "–");
  const head = make("tr", {}, names.map((name, i) => make("th", { className: rows.length && numeric(rows[0][i]) ? "number" : "" }, name)));
  const named = (value, i) => { const made = cell("td", value); made.dataset.name = names[i]; return made; };
  return make("div", { className: "scroll" }, make("table", { className: kind }, make("thead", {}, head),
    make("tbody", {}, rows.map((each) => make("tr", {}, each.map(named))))));
}

/** A table of names and texts. */
const rows = (named) =>
  make("div", { className: "scroll" }, make("table", {}, make("tbody", {}, named.map(([name, text]) =>
    make("tr", {}, make("td", { className: "dim" }, name), make("td", {}, text))))));

const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));

const pairs = (fields) => rows(Object.entries(fields || {}).map(([name, value]) => [name, make("code", {}, written(value))]));

const card = (title, ...content) => make("section", { className: "card" }, make("h2", {}, title), ...content);

const tile = (value, told) => make("div", { className: "tile" }, make("div", { className: /[a-z]{3}/.test(value) ? "value words" : "value" }, value), make("div", { className: "small" }, told));

const address = (run, name) => `/file?${new URLSearchParams({ path: run.path, name, at: run.changed })}`;

function film(run, name) {
  const caption = make("figcaption", {}, run.filmed[name] ? `${name}: ${run.filmed[name]}` : name);
  if (name.endsWith(".mp4")) return make("figure", {}, make("video", { src: address(run, name), controls: true, loop: true, muted: true }), caption);
  if (name.endsWith(".html")) return make("figure", {}, make("iframe", { src: address(run, name), sandbox: "allow-scripts", title: name }), caption);
  return make("figure", {}, make("img", { src: address(run, name), alt: `film ${name}` }), caption);
}

/** What came of a run: a number, and what it is. */
function outcome(run) {
  const interval = run.summary.return_iqm;
  const alive = run.results.filter((each) => each.alive && each.return !== null);
  if (run.kind === "evolve") return [short(result(run)), "fitness"];
  if (isGame(run)) return [valued(run), `games won by seats ${run.seats.map((each) => each.seat).join(" : ")}; ${percent(run.drawn)} drawn${run.sampled ? "; sampled" : ""}${run.searched || ""}`];
  if (run.sweep.length) {
    const best = run.sweep[0];
    const seeds = best.returns || [];
    const told = seeds.length >= FEW ? `${STATISTIC} of ${seeds.length} seeds${best.low === null ? "" : `, 95 % in${between(best)}`}` : `seeds: ${seeds.map(short).join(", ")}`;
    return [short(best.value), `${returned(run)} of the best of ${run.configurations} configurations; ${told}`];
  }
  if (run.configurations > 1) return ["–", "return of the best configuration, once all are evaluated"];
  if (run.return === null && !alive.length) return [short(run.latest), `latest return${run.members > 1 ? `, ${STATISTIC} of agents` : ""}`];
  if (run.members === 1) return [short(result(run)), returned(run)];
  if (run.members < FEW) return [alive.map((each) => short(each.return)).join(", "), `${returned(run)} of each agent`];
  return [short(result(run)), `${returned(run)}, ${STATISTIC} of agents${interval && interval.low !== null ? `, 95 % in${between(interval)}` : ""}`];
}

function tiles(run, now) {
  const dead = run.results.filter((each) => !each.alive).length;
  const rate = speed(run, now);
  const best = run.sweep.length ? tile(configuration(run, run.sweep[0]), "best configuration") : null;
  return [
    best, tile(...outcome(run)), tile(short(run.done), `of ${short(run.total)} ${unit(run)}${run.members > 1 && run.kind !== "evolve" ? ", all agents" : ""}`),
    tile(rate ? short(rate) : "–", `${unit(run)} a second`), tile(lasting(run.seconds), "of computing"),
    tile(`${run.members}`, `${named(run)}${dead ? `, ${dead} died` : ""}`),
  ];
}

/** What a sweep or a search came to: the ranking and its map, or what was seen on held-out seeds. */
function findings(run) {
  const parts = [];
  if (run.sweep.length) {
    const swept = Object.keys(run.swept);
    const many = (run.sweep[0].returns || []).length >= FEW;
    const stopped = new Set(run.sweep.map((each) => each.env_steps)).size > 1;
    const row = (each, i) => [`${i + 1}`, each.value, ...each.values, ...(stopped ? [each.env_steps] : []), many ? between(each).trim() : (each.returns || []).map(short).join(", "), each.agents];
    parts.push(card("Ranking", table(["rank", "return, IQM", ...swept, ...(stopped ? ["frames"] : []), many ? "95 % interval" : "single seeds", "agents"], run.sweep.map(row), "lean"),
      make("p", { className: "small" }, `IQM: ${STATISTIC} over the seeds of a configuration. Agents: the numbers that --agent takes.`)));
    if (run.pictures.includes("sweep.png")) parts.push(card("Map", picture(run, "sweep.png")));
  }
  if (run.programs.length) {
    const link = (each) => make("a", { className: "link", href: `#/run/${encodeURIComponent([run.path, each.program].filter((part) => part !== "").join("/"))}` }, `${run.name}/${each.program}`);
    parts.push(card("Programs", table(["program", "settings", "best return, IQM", "status"], run.programs.map((each) => [link(each), each.settings, each.return, each.status]), "stacked")));
  }
  if (run.kind === "evolve") parts.push(card("What it searched", rows(run.search)));
  if (run.reports.length) parts.push(report(run));
  else if (run.kind === "evolve") parts.push(make("p", { className: "hint" }, `No report on held-out seeds yet: purerl evolve report ${run.path || "RUN"}`));
  return parts;
}

/** How a search's function compares with baselines: in words, and in a table. */
function report(run) {
  const verdict = ({ low, high }) => (low === null ? "too few seeds to tell" : low > 0 ? "better" : high < 0 ? "worse" : "no difference seen");
  const told = (estimate) => short(estimate.value) + between(estimate);
  const several = new Set(run.reports.map((each) => each.of)).size > 1;
  const row = (each) => [...(several ? [each.of] : []), `${each.env}${each.held_out ? " (held out)" : ""}`, `${each.baseline}${each.tuned ? `, ${each.tuned}` : ""}`,
    verdict(each.difference), told(each.difference), told(each.evolved), told(each.compared)];
  const than = { better: "better than", worse: "worse than", "no difference seen": "not seen to differ from", "too few seeds to tell": "trained with too few seeds to tell from" };
  const counts = Object.keys(than).map((word) => [than[word], run.reports.filter((each) => verdict(each.difference) === word).length]);
  const words = counts.filter(([, count]) => count).map(([word, count]) => `${word} ${count}`).join(" and ");
  return card("Held-out report", make("p", {}, `Of ${run.reports.length} baseline${run.reports.length === 1 ? "" : "s"} the learned function is ${words}.`),
    table([...(several ? ["function"] : []), "environment", "baseline", "learned is", "difference", "fitness, learned", "fitness, baseline"], run.reports.map(row), "stacked"),
    make("p", { className: "small" }, `Fitness of whole trainings on seeds that the search never saw: ${STATISTIC}s, with 95 % bootstrap intervals; differences are paired.`));
}

const picture = (run, name) => make("figure", {}, make("a", { href: address(run, name), target: "_blank", title: "larger" }, make("img", { src: address(run, name), alt: name })), make("figcaption", {}, name));

function details(run) {
  const parts = [];
  if (run.films.length) parts.push(card("Films", run.films.map((name) => film(run, name))));
  if (run.learned.length) {
    const known = (name, value) => name in run.settings || name in run.summary || value === "" || name === "algo";
    const more = (each) => Object.fromEntries(Object.entries(each.card || {}).filter(([name, value]) => !known(name, value)));
    parts.push(card("Learned functions", run.learned.map((each) => make("div", {}, make("p", {}, make("strong", {}, NAMES[each.name] || each.name), ` ${each.socket || each.problem}`),
      each.words ? make("pre", {}, make("code", {}, each.words)) : "", Object.keys(more(each)).length ? pairs(more(each)) : ""))));
  }
  const drawn = [...(run.sweep.length ? ["sweep.png"] : []), ...(run.kind === "evolve" ? ["curve.png"] : [])]; // above, or as a chart
  const pictures = run.pictures.filter((name) => !drawn.includes(name));
  if (pictures.length) parts.push(card("Pictures", pictures.map((name) => picture(run, name))));
  if (run.results.length) {
    const several = run.configurations > 1;
    const fate = (each) => !each.alive ? "✕ died" : each.stopped_at ? `stopped at ${each.stopped_at.toLocaleString()} ${unit(run)}` : "alive";
    const cells = (each) => [`${each.agent}`, ...(several ? [`${each.config}`] : []), `${each.seed}`, each.return, each.std, each.length, fate(each)];
    parts.push(card("Agents", table(["agent", ...(several ? ["config"] : []), "seed", returned(run), "std", "length", ""], run.results.map(cells), "lean")));
  }
  if (run.seats.some((each) => each.return !== null)) {
    const kinds = isGame(run) ? ["return", "won", "drawn", "lost"] : ["return"];
    const cells = (each) => [each.seat, each.return, ...kinds.slice(1).map((kind) => percent(each[kind]))];
    parts.push(card("By seat", table(["seat", ...kinds], run.seats.map(cells)), make("p", { className: "small" }, "Means over the agents, of the evaluation.")));
  }
  parts.push(card("Configuration", pairs(run.config)));
  parts.push(card("Run", pairs({ ...run.settings, ...run.options })));
  if (run.history.length) parts.push(card("Changes", run.history.map((line) => make("p", {}, written(line)))));
  if (Object.keys(run.summary).length) parts.push(card("Summary", pairs(run.summary)));
  if (run.checkpoints.length) {
    parts.push(card("Checkpoints", table(["batch", "step", "MB", "written"],
      run.checkpoints.map((each) => [each.batch, each.step, each.bytes / 1e6, new Date(each.changed * 1000).toLocaleString()]), "lean")));
  }
  return parts;
}

/** The curves that are drawn large: of a search the fitness of its candidates, otherwise the first metric. */
async function large(run, metrics, setting) {
  const shares = run.configurations === 1 ? metrics.filter((name) => /^(won\/|drawn$)/.test(name)) : [];
  const together = run.kind === "evolve" ? Object.keys(FITNESS).filter((name) => metrics.includes(name)) : shares;
  if (together.length < 2) {
    const found = metrics.length ? await curvesOf([run.path], metrics[0], setting) : null;
    return found && found.lines.length ? { ...found, shows: [found.metric] } : null;
  }
  const all = (await Promise.all(together.map((name) => curvesOf([run.path], name)))).filter((each) => each.lines.length);
  const named = all.map((each) => ({ ...each.lines[0], name: FITNESS[each.metric] || each.title, label: FITNESS[each.metric] || each.title }));
  const title = run.kind === "evolve" ? {} : { title: "shares of games" };
  return all.length ? { ...all[0], ...title, lines: named, shows: together } : null;
}

/** Where one comes from: of a program of a sweep the page of the sweep. */
function back(run) {
  const above = run.name.split("/").slice(0, -1).join("/");
  const sweep = run.path.split("/").slice(0, -1).join("/");
  return make("a", { className: "small", href: above ? `#/run/${encodeURIComponent(sweep)}` : "#/" }, above ? `← ${above}` : "← all runs");
}

async function one(path) {
  const head = make("div");
  const found = make("div", { id: "findings" });
  const curves = make("div");
  const more = make("div", { className: "columns" });
  let seen = "";
  let setting = "";
  main.replaceChildren(head, found, curves, more);
  const update = async () => {
    const run = await ask("/api/run", { path });
    const now = Date.now() / 1000;
    if (!run.metrics) {
      head.replaceChildren(make("h1", {}, run.name), status(run), make("p", {}, run.problem));
      return;
    }
    document.getElementById("folder").textContent = run.folder;
    head.replaceChildren(back(run), make("div", { className: "head" }, make("h1", {}, run.name || "this run"), kindOf(run), status(run)),
      make("div", { className: "dim" }, `${run.socket ? `${run.socket} of ` : ""}${run.algo} on ${run.env}`),
      make("div", { className: "dim" }, Object.entries(run.swept).map(([name, values]) => `${name}: ${values}`).join(" · ")),
      make("div", { className: "tiles" }, tiles(run, now)), make("div", {}, progress(run, now)));
    const state = JSON.stringify([run.changed, run.status, run.films, run.pictures, run.checkpoints, run.reports, run.programs, setting, curves.clientWidth]);
    if (state === seen) return;
    seen = state;
    const metrics = ordered(run.metrics);
    const first = await large(run, metrics, setting);
    const others = metrics.filter((name) => !first || !first.shows.includes(name));
    const rest = (await Promise.all(others.map((name) => curvesOf([path], name, first ? first.setting : "")))).filter((each) => each.lines.length);
    const still = rest.filter((each) => constant(each) !== null);
    const series = first ? seriesOf(first) : [];
    const small = { width: widthIn(curves, 300), height: 190 };
    const names = (each) => JSON.stringify(each.lines.map((line) => line.name));
    const isKnown = (each) => first !== null && names(each) === names(first); // what the legend of the first chart tells
    const big = { width: widthIn(curves), height: widthIn(curves) < 600 ? 250 : 330 };
    const drawn = rest.filter((each) => constant(each) === null).map((each) => chart({ title: each.title, series: seriesOf(each), over: each.over, legend: !isKnown(each), ...small }));
    const choose = (name) => { setting = name; update(); };
    found.replaceChildren(...findings(run));
    curves.replaceChildren(make("section", { className: "card" }, ...(first
      ? [chart({ title: first.title, series, over: first.over, ...big }), make("p", { className: "small" }, legend(series)), joining(first, setting, choose)]
      : [make("p", { className: "hint" }, "No curve yet.")])));
    const told = still.map((each) => `${each.title} ${short(constant(each))}`).join(", ");
    const constants = told ? make("p", { className: "small" }, `Constant: ${told}.`) : "";
    if (drawn.length) curves.append(make("section", { className: "card" }, make("div", { className: "charts" }, drawn), constants));
    else curves.lastChild.append(constants);
    more.replaceChildren(...details(run));
  };
  await update();
  return update;
}

// ---------------------------------------------------------------- several runs

let metric = "";

async function compared(paths) {
  const pick = make("select", { "aria-label": "what to compare" });
  const body = make("div");
  let seen = "";
  let offered = "";
  let setting = "";
  const update = async (again = false) => {
    const runs = await Promise.all(paths.map((path) => ask("/api/run", { path })));
    const state = JSON.stringify([runs.map((run) => [run.changed, run.status]), body.clientWidth]);
    if (state === seen && again !== true) return;
    seen = state;
    const names = ordered([...new Set(runs.flatMap((run) => run.metrics || []))]);
    const usual = names.includes("episode_return") && !runs.every(isGame) ? "episode_return" : names[0];
    const value = names.includes(metric) ? metric : usual;
    if (names.join("\n") !== offered) {
      offered = names.join("\n");
      const titles = Object.assign({}, ...runs.map((run) => run.titles));
      pick.replaceChildren(...names.map((name) => make("option", { value: name }, titles[name])));
    }
    pick.value = value;
    const having = runs.filter((each) => (each.metrics || []).includes(value)).map((each) => each.path);
    const found = having.length ? await curvesOf(having, value, setting) : { lines: [], offered: [] };
    const series = seriesOf(found);
    const rows = runs.map((run) => {
      if (!run.summary) return [run.name, "", "", "–", run.problem, "–", "–", run.status];
      return [run.name, run.algo, run.env, run.members, outcome(run).join("; ").replace(/; return(, )?/, (_, more) => (more ? "; " : "")), run.done, run.speed, run.status];
    });
    const units = [...new Set(runs.filter((run) => run.summary).map(unit))].join(" or ") || "frames";
    const width = widthIn(body);
    body.replaceChildren(
      make("section", { className: "card" }, chart({ series, over: found.over || "", width, height: width < 600 ? 260 : 420, title: found.title }),
        make("p", { className: "small" }, legend(series)), joining(found, setting, (name) => { setting = name; update(true); })),
      card("Results", table(["run", "algorithm", "environment", "agents", "return", units, `${units} a second`, "status"], rows, "stacked")),
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
  const settings = runs.map((run) => ({ algo: run.algo, env: run.env, ...(run.settings || {}).env_params, ...run.config, ...run.swept }));
  const names = [...new Set(settings.flatMap(Object.keys))];
  const differ = names.filter((name) => new Set(settings.map((each) => JSON.stringify(each[name]))).size > 1);
  if (!differ.length) return make("p", { className: "hint" }, "Nothing but the seeds.");
  return table(["", ...runs.map((run) => run.name)], differ.map((name) => [name, ...settings.map((each) => (each[name] === undefined ? "–" : written(each[name])))]));
}
