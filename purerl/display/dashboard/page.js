// The page: where one is, and staying up to date. It asks the server every few seconds while it is seen.
"use strict";

const EVERY = 2000;
const main = document.getElementById("main");
let current = 0;

async function ask(address, parameters = {}, method = "GET") {
  const answer = await fetch(`${address}?${new URLSearchParams(parameters)}`, { method });
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.problem);
  return found;
}

async function show() {
  const mine = ++current;
  const [, place, ...rest] = location.hash.split("/");
  const pulse = document.getElementById("pulse");
  const fresh = () => { pulse.textContent = `up to date, ${new Date().toLocaleTimeString()}`; };
  let update = null;
  const fail = (error) => main.replaceChildren(make("p", { className: "hint" }, `${error.message}`));
  try {
    const paths = rest.map(decodeURIComponent);
    if (place === "run") update = await one(paths[0] || "");
    else if (place === "compare" && paths.length) update = await compared(paths);
    else if (place === "play") update = await game();
    else {
      const found = await ask("/api/runs");
      document.getElementById("folder").textContent = found.folder;
      const renew = list(found);
      update = async () => renew(await ask("/api/runs"));
    }
    fresh();
  } catch (error) {
    fail(error);
    pulse.textContent = "";
  }
  while (mine === current) {
    await new Promise((done) => setTimeout(done, EVERY));
    if (mine !== current) return;
    if (document.hidden) continue;
    if (!update) { show(); return; }
    try {
      await update();
      fresh();
    } catch (error) {
      pulse.textContent = `not up to date: ${error.message}`;
    }
  }
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  document.getElementById("theme").onclick = () => {
    const other = name === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", other); } catch { /* it lasts until the page is closed */ }
    theme(other);
  };
}

let remembered = null;
try { remembered = localStorage.getItem("theme"); } catch { /* nothing is remembered */ }
theme(remembered || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
addEventListener("hashchange", show);
ask("/api/game").then((found) => { document.getElementById("play").hidden = !found; }).catch(() => {});
show();
