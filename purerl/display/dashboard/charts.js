// Curves as SVG: lines, bands of the intervals, axes, a legend and what is under the pointer.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties and children; texts become text nodes, so that nothing is ever read as markup. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A number as a person writes it: 1234567 is 1.23M. */
function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit * (letter === "k" ? 10 : 1)) return `${parseFloat((value / unit).toPrecision(3))}${letter}`;
  }
  if (size >= 1000) return value.toFixed(0);
  if (size >= 1e-4 || size === 0) return `${parseFloat(value.toPrecision(4))}`;
  return value.toExponential(1);
}

/** About `count` round numbers within [low, high]. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(value);
  return found;
}

function extent(arrays) {
  let low = Infinity;
  let high = -Infinity;
  for (const array of arrays) {
    for (const value of array) {
      if (value !== null && value < low) low = value;
      if (value !== null && value > high) high = value;
    }
  }
  if (low === Infinity) return [0, 1];
  // numbers that differ by rounding alone: no tick would ever step beyond the first
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) return [low - (Math.abs(low) * 0.1 || 0.5), high + (Math.abs(high) * 0.1 || 0.5)];
  return [low, high];
}

/** The path of the points that are there, in one piece: a point without a value is passed over. */
function path(x, y) {
  const points = [];
  y.forEach((value, i) => {
    if (value !== null) points.push(`${x(i).toFixed(1)} ${value}`);
  });
  return points.length ? `M${points.join("L")}` : "";
}

/**
 * Draws `series` ({name, label, x, mid, low, high, lines, colour}) into a new element, `width` by `height`.
 * `over` is what lies on the x axis; a series with intervals has a band, and one of few members a faint line for each.
 */
function chart({ title, series, over, width = 640, height = 260, legend = true }) {
  const margin = { left: 52, right: 12, top: 8, bottom: 32 };
  const [left, right] = extent(series.map((each) => each.x));
  const shown = series.flatMap((each) => [each.mid, each.low, each.high, ...each.lines]);
  let [bottom, top] = extent(shown);
  const room = (top - bottom) * 0.05;
  [bottom, top] = [bottom - room, top + room];
  const across = (value) => margin.left + ((value - left) / (right - left)) * (width - margin.left - margin.right);
  const up = (value) => height - margin.bottom - ((value - bottom) / (top - bottom)) * (height - margin.top - margin.bottom);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title || "curve" });
  for (const value of ticks(bottom, top, height > 200 ? 5 : 3)) {
    svg.append(draw("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: up(value), y2: up(value) }));
    svg.append(draw("text", { class: "axis", x: margin.left - 6, y: up(value) + 4, "text-anchor": "end" }, short(value)));
  }
  for (const value of ticks(left, right, width > 500 ? 6 : 4)) {
    const label = draw("text", { class: "axis", x: across(value), y: height - margin.bottom + 15, "text-anchor": "middle" });
    label.append(short(value));
    svg.append(label);
  }
  const middle = { class: "axis", x: (margin.left + width - margin.right) / 2, y: height - 3, "text-anchor": "middle" };
  svg.append(draw("text", middle, over));
  for (const each of series) {
    const colour = `c${each.colour % 8}`;
    const x = (i) => across(each.x[i]);
    const scaled = (values) => values.map((value) => (value === null ? null : up(value).toFixed(1)));
    if (each.size > 1) {
      const high = path(x, scaled(each.high));
      const last = each.x.length - 1;
      const low = path((i) => x(last - i), scaled(each.low).reverse());
      if (high && low) svg.append(draw("path", { class: `band ${colour}`, d: `${high}L${low.slice(1)}Z` }));
    }
    for (const line of each.lines) svg.append(draw("path", { class: `faint ${colour}`, d: path(x, scaled(line)) }));
    const dashes = `d${Math.floor(each.colour / 2) % 4}`;
    svg.append(draw("path", { class: `curve ${colour} ${dashes}`, d: path(x, scaled(each.mid)) }));
  }
  const box = make("div", { className: "chart" }, title ? make("h3", {}, title) : "", svg);
  pointer(box, svg, { series, over, across, up, width, height, margin });
  if (legend && series.length > 1) box.append(make("div", { className: "legend" }, series.map(key)));
  return box;
}

function key(each) {
  const line = draw("line", { class: `curve c${each.colour % 8} d${Math.floor(each.colour / 2) % 4}`, x1: 0, x2: 26, y1: 4, y2: 4 });
  return make("span", {}, draw("svg", { viewBox: "0 0 26 8" }, line), each.label);
}

/** Shows the values nearest to the pointer. */
function pointer(box, svg, { series, over, across, up, width, height, margin }) {
  const cursor = draw("line", { class: "cursor", y1: margin.top, y2: height - margin.bottom, visibility: "hidden" });
  const tip = make("div", { className: "tip", hidden: true });
  const dots = series.map((each) => draw("circle", { class: `dot c${each.colour % 8}`, r: 3.5, visibility: "hidden" }));
  svg.append(cursor, ...dots);
  box.append(tip);
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect();
    const at = ((event.clientX - frame.left) / frame.width) * width;
    const rows = [];
    let where = null;
    series.forEach((each, k) => {
      let best = -1;
      each.x.forEach((value, i) => {
        if (each.mid[i] === null) return;
        if (best < 0 || Math.abs(across(value) - at) < Math.abs(across(each.x[best]) - at)) best = i;
      });
      if (best < 0) return;
      where = where === null ? each.x[best] : where;
      dots[k].setAttribute("cx", across(each.x[best]));
      dots[k].setAttribute("cy", up(each.mid[best]));
      dots[k].setAttribute("visibility", "visible");
      const band = each.low[best] === null ? "" : ` [${short(each.low[best])}, ${short(each.high[best])}]`;
      rows.push(make("div", {}, `${series.length > 1 ? `${each.name}: ` : ""}${short(each.mid[best])}${band}`));
    });
    if (where === null) return;
    cursor.setAttribute("x1", across(where));
    cursor.setAttribute("x2", across(where));
    cursor.setAttribute("visibility", "visible");
    tip.replaceChildren(make("div", { className: "dim" }, `${over} ${short(where)}`), ...rows);
    tip.hidden = false;
    const place = event.clientX - box.getBoundingClientRect().left;
    tip.style.left = `${place > frame.width * 0.6 ? place - tip.offsetWidth - 14 : place + 14}px`;
    tip.style.top = `${event.clientY - box.getBoundingClientRect().top - 10}px`;
  });
  svg.addEventListener("pointerleave", () => {
    for (const mark of [cursor, ...dots]) mark.setAttribute("visibility", "hidden");
    tip.hidden = true;
  });
}

/** A curve without axes. */
function spark(values) {
  const [low, high] = extent([values]);
  const svg = draw("svg", { viewBox: "0 0 132 34", width: 132, height: 34, "aria-hidden": "true" });
  if (values.length > 1) {
    const y = values.map((value) => (31 - ((value - low) / (high - low)) * 28).toFixed(1));
    svg.append(draw("path", { class: "curve c0", d: path((i) => (i / (values.length - 1)) * 130 + 1, y) }));
  }
  return svg;
}
