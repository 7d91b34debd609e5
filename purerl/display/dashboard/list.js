// A run in a few words and numbers, wherever it stands, and the list of runs.
"use strict";

const MARKS = { running: "●", completed: "✓", interrupted: "❚❚", stopped: "■", diverged: "✕", damaged: "!" };
const chosen = new Set();
const rates = new Map();
let filter = "";
let kind = "all";

const status = (run) =>
  make("span", { className: `status ${run.status}` }, make("span", { className: "mark" }, MARKS[run.status] || "?"), run.status);

const kindOf = (run) => make("span", { className: "kind" }, run.kind);

function ago(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return "now";
}

function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds >= 3600) return `${(seconds / 3600).toFixed(1)} h`;
  return seconds >= 60 ? `${(seconds / 60).toFixed(1)} min` : `${seconds.toFixed(1)} s`;
}

/** Frames (or generations) a second: what a finished run says, or what this page has seen of a live one. */
function speed(run, now) {
  if (run.speed !== null || run.status !== "running") return run.speed;
  const before = rates.get(run.path);
  if (!before || run.done < before.done) {
    rates.set(run.path, { first: run.done, since: now, done: run.done });
    return null;
  }
  before.done = run.done;
  return now > before.since && run.done > before.first ? (run.done - before.first) / (now - before.since) : null;
}

const named = (run) => `${run.kind === "evolve" ? "candidate" : "agent"}${run.members === 1 ? "" : "s"}`;

const unit = (run) => (run.kind === "evolve" ? "generations" : run.unit || "frames");

function progress(run, now) {
  const rate = speed(run, now);
  const left = rate && run.status === "running" ? `, ${lasting((run.total - run.done) / rate)} left` : "";
  const pace = rate ? ` · ${short(rate)} ${unit(run)}/s${left}` : "";
  return [
    make("progress", { max: Math.max(1, run.total), value: run.done, "aria-label": "progress" }),
    make("div", { className: "small" }, `${short(run.done)} of ${short(run.total)} ${unit(run)}${pace}`),
  ];
}

const result = (run) => (run.return === null || run.return === undefined ? run.latest : run.return);

/** Whether the agents of a run play a game that one of them wins. */
const isGame = (run) => run.drawn !== null && run.drawn !== undefined;

const percent = (share) => (share === null ? "–" : `${Math.round(100 * share)}\u00a0%`);

/** The number of a run in the list; of a zero-sum game, whose return is 0, how many games each seat won. */
const valued = (run) => (isGame(run) ? `${run.seats.map((each) => Math.round(100 * each.won)).join("\u00a0:\u00a0")}\u00a0%` : short(result(run)));

/** What a run's number in its final evaluation is called: that of sampled actions or of searches says so. */
const returned = (run) => `${run.sampled ? "sampled return" : "return"}${run.searched || ""}`;

/** What the number of a run in the list is. */
function scored(run) {
  if (isGame(run)) return `won by seat, ${percent(run.drawn)} drawn${run.sampled ? ", sampled" : ""}${run.searched || ""}`;
  if (run.kind === "evolve") return "fitness";
  if (run.kind === "sweep") return `best ${returned(run)}, IQM`;
  if (run.members === 1) return returned(run);
  return `${returned(run)}, IQM`;
}

// ---------------------------------------------------------------- the list

function list(found) {
  const search = make("input", { type: "search", placeholder: "Filter: name, algorithm, environment", value: filter });
  const kinds = make("select", { title: "Kind of run", "aria-label": "Kind of run" });
  for (const name of ["all", "train", "population", "sweep", "evolve"]) kinds.append(make("option", { value: name }, name));
  kinds.value = kind;
  const compare = make("button", { type: "button", className: "primary", id: "compare" });
  const rows = make("div", { className: "runs" });
  const count = () => {
    compare.disabled = chosen.size < 2;
    compare.textContent = chosen.size < 2 ? "Compare: tick two or more" : `Compare ${chosen.size} runs`;
  };
  const fill = () => {
    const focused = rows.contains(document.activeElement) ? document.activeElement.id : "";
    const words = filter.toLowerCase().split(/\s+/);
    const fits = (run) => words.every((word) => `${run.path} ${run.algo} ${run.env} ${run.socket}`.toLowerCase().includes(word));
    const kept = found.runs.filter((run) => fits(run) && (kind === "all" || run.kind === kind));
    rows.replaceChildren(...kept.map((run) => row(run, found.now, count)));
    if (focused) document.getElementById(focused)?.focus();
    if (!kept.length) rows.append(make("p", { className: "hint" }, found.runs.length ? "No run fits." : "No runs here yet."));
    if (found.left_out) rows.append(make("p", { className: "hint" }, `${found.left_out} older runs are not listed.`));
  };
  search.addEventListener("input", () => { filter = search.value; fill(); });
  kinds.addEventListener("change", () => { kind = kinds.value; fill(); });
  compare.addEventListener("click", () => { location.hash = `#/compare/${[...chosen].map(encodeURIComponent).join("/")}`; });
  const update = (newer) => { found = newer; fill(); };
  count();
  fill();
  main.replaceChildren(make("div", { className: "bar" }, search, kinds, compare), rows);
  return update;
}

function row(run, now, changed) {
  const tick = make("input", { type: "checkbox", id: `tick ${run.path}`, checked: chosen.has(run.path), ariaLabel: `compare ${run.name}` });
  tick.addEventListener("change", () => { chosen[tick.checked ? "add" : "delete"](run.path); changed(); });
  const link = make("a", { className: "name", id: `link ${run.path}`, href: `#/run/${encodeURIComponent(run.path)}` }, run.name || run.path || "this run");
  const place = run.path === run.name ? "" : run.path;
  if (run.kind === "damaged") {
    return make("div", { className: "run" }, make("span"), make("div", {}, run.name, make("div", { className: "small" }, run.problem)),
      make("span"), make("span"), make("span"), make("span"), status(run));
  }
  const agents = `${run.members} ${named(run)}`;
  const sizes = run.configurations > 1 ? `${run.configurations} configurations, ${agents}` : agents;
  return make("div", { className: "run" }, tick,
    make("div", {}, link, make("div", { className: "small" }, kindOf(run), place)),
    make("div", {}, make("div", {}, `${run.socket ? `${run.socket} of ` : ""}${run.algo}`), make("div", { className: "small" }, run.env)),
    spark(run.spark),
    make("div", {}, make("div", { className: "value" }, valued(run)), make("div", { className: "small" }, scored(run))),
    make("div", {}, progress(run, now), make("div", { className: "small" }, sizes)),
    make("div", {}, status(run), make("div", { className: "small" }, ago(now - run.changed))));
}
