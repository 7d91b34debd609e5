// A game against an agent: the board, the moves that may be made, and what the agent's searches found.
"use strict";

const EMPTY = ".";
const NEW = "new";

/** The value and the visits that a search found, as beside the pictures of a film. */
function searched(move) {
  if (move.value === null) return [];
  const most = move.visits[0][1];
  const row = ([action, visits]) => [make("span", {}, `${action}`), make("progress", { max: most, value: visits, ariaLabel: `visits of ${action}` }), make("span", {}, `${visits}`)];
  return [make("div", { className: "bar" }, make("span", {}, `value ${signed(move.value)}`), make("span", { className: "space" }), make("span", { className: "small" }, "visits")),
    make("div", { className: "visits" }, move.visits.flatMap(row))];
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

const inWords = (move) => `${move.who} ${move.action}${move.value === null ? "" : `, value ${signed(move.value)}`}`;

async function game() {
  let found = await ask("/api/game");
  if (!found) throw new Error("no game is played here: purerl play RUN --page");
  let waits = false;
  const head = make("div", { className: "head" });
  const told = make("p", { id: "told", role: "status", ariaLive: "polite" });
  const board = make("div", { className: "around" });
  const beside = make("section", { className: "card" });
  main.replaceChildren(head, make("div", { className: "columns" }, make("section", { className: "card" }, told, board), beside));

  const button = (action, words, kind) =>
    make("button", { type: "button", className: kind, ariaLabel: `move ${action}`, disabled: waits, onclick: () => play(action) }, words);
  const cell = ([text, action]) => {
    const words = text === EMPTY ? "" : text;
    if (action === null) return make("span", { className: `cell ${{ X: "own", O: "other" }[text] || ""}` }, words);
    return button(action, words, "cell move");
  };
  const show = (words) => {
    const last = found.moves.findLast((move) => move.value !== null);
    const latest = found.moves[found.moves.length - 1];
    const answer = latest && latest.who !== "you" ? `${latest.who} plays ${latest.action}. ` : "";
    head.replaceChildren(make("h1", {}, found.result || "Your move"), make("span", { className: "space" }),
      make("button", { type: "button", className: "primary", id: "new", disabled: waits, onclick: () => play(NEW) }, "New game"),
      make("div", { className: "dim wide" }, found.about));
    told.textContent = words || `${answer}${found.result ? `${found.result}.` : ""}`;
    board.replaceChildren(
      ...(found.cells.length ? [make("div", { className: "board", style: `--columns: ${found.cells[0].length}` }, found.cells.flat().map(cell))] : [make("pre", {}, found.words)]),
      make("div", { className: "others" }, found.others.map((action) => button(action, `${action}`, "move"))));
    beside.replaceChildren(make("h2", {}, "The agent's search"),
      ...(last ? [make("p", { className: "small" }, `for its move ${last.action}`), ...searched(last)] : [make("p", { className: "hint" }, "It has not searched.")]),
      make("h2", { className: "later" }, "Moves"), make("ol", {}, found.moves.map((move) => make("li", {}, inWords(move)))));
  };
  const play = async (move) => {
    waits = true;
    show("The agent is thinking …");
    let words = "";
    try {
      found = await ask("/api/game", { place: found.place, move }, "POST");
    } catch (error) {
      words = error.message;
      found = (await ask("/api/game").catch(() => null)) || found;
    } finally {
      waits = false;
    }
    show(words);
  };
  show("");
  return async () => {
    const before = found;
    const newer = await ask("/api/game");
    if (waits || found !== before || newer.place === found.place) return; // a server begun anew counts from 0
    found = newer;
    show("");
  };
}
