"use strict";
// What the page does beyond showing: its colours switch, tables sort and filter, cells of the grid are looked into.
// Text of the study only ever becomes the text of an element, never markup.

const told = JSON.parse(document.getElementById("told").textContent);
const cellNumbered = new Map(told.cells.map((cell) => [cell.cell, cell]));
const YELLOW_TO_BLUE = ["#ffffd9", "#edf8b1", "#c7e9b4", "#7fcdbb", "#41b6c4", "#1d91c0", "#225ea8", "#253494", "#081d58"];
const ORANGE_TO_VIOLET = ["#b35806", "#e08214", "#fdb863", "#fee0b6", "#f7f7f7", "#d8daeb", "#b2abd2", "#8073ac", "#542788"];
const VIEWS = ["simulated", "limit", "difference"];
const SVG = "http://www.w3.org/2000/svg";

function element(name, given = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, given, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// Light and dark: as the system has it until the button says otherwise.

function addThemeButton() {
  const root = document.documentElement;
  const dark = () => getComputedStyle(root).colorScheme === "dark" ||
    (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  const button = element("button", { type: "button" });
  const name = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `${button.textContent} colours`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();
  document.querySelector("nav").append(button);
}

// Tables: a click on a head sorts by it, undefined values last; conditions and words filter the cells.

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = element("button", { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sort(table.tBodies[0], column, up ? 1 : -1);
    });
  });
}

function sort(body, column, direction) {
  body.querySelectorAll("tr.open").forEach(closeRow);
  const numeric = [...body.rows].some((row) => row.cells[column]?.dataset.value !== undefined);
  const key = (row) => {
    const entry = row.cells[column];
    if (!entry || entry.colSpan > 1) return null;
    if (!numeric) return entry.textContent;
    return entry.dataset.value === undefined ? null : Number(entry.dataset.value);
  };
  const rows = [...body.rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return direction * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
  });
  body.append(...rows.map(([, row]) => row));
}

function addFilter(table) {
  const names = [...table.tHead.rows[0].cells].map((head) => head.textContent.toLowerCase());
  const hint = "words or conditions, such as: fails slots=16";
  const input = element("input", { type: "search", placeholder: hint, spellcheck: "false" });
  const count = element("span", { role: "status" });
  const show = () => {
    const terms = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    table.querySelectorAll("tr.open").forEach(closeRow);
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) row.hidden = !terms.every((term) => meets(row, term, names));
    count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} cells`;
  };
  input.addEventListener("input", show);
  table.parentElement.before(element("div", { class: "filter" }, element("label", {}, "Show cells with ", input), count));
  show();
}

function meets(row, term, names) {
  const parts = /^(.+?)(<=|>=|=|<|>)(.+)$/.exec(term);
  const column = parts ? names.findIndex((name) => name === parts[1] || name.split(" ")[0] === parts[1]) : -1;
  if (column < 0) return row.textContent.toLowerCase().includes(term);
  const entry = row.cells[column];
  if (!entry || entry.colSpan > 1) return false;
  const wanted = Number(parts[3].replaceAll(",", ""));
  const value = Number(entry.dataset.value ?? NaN);
  if (Number.isNaN(wanted) || Number.isNaN(value)) return parts[2] === "=" && entry.textContent.toLowerCase() === parts[3];
  const compared = { "=": value === wanted, "<": value < wanted, ">": value > wanted };
  return parts[2].length === 2 ? compared["="] || compared[parts[2][0]] : compared[parts[2]];
}

function addOpeners(table) {
  for (const entry of table.querySelectorAll("td.cell")) {
    const cell = cellNumbered.get(Number(entry.dataset.value));
    const button = element("button", { type: "button", "aria-expanded": "false" }, entry.textContent);
    button.setAttribute("aria-label", `Cell ${cell.cell}: its distribution`);
    button.addEventListener("click", () => {
      const row = entry.parentElement;
      if (row.nextElementSibling?.classList.contains("open")) return closeRow(row.nextElementSibling);
      const inside = element("td", { colspan: table.tHead.rows[0].cells.length }, cellShown(cell, "multiple"));
      row.after(element("tr", { class: "open" }, inside));
      button.setAttribute("aria-expanded", "true");
    });
    entry.replaceChildren(button);
  }
}

function closeRow(opened) {
  opened.previousElementSibling.querySelector("td.cell button").setAttribute("aria-expanded", "false");
  opened.remove();
}

// One cell: the distribution of a metric over its workloads, its figures and its verdicts.

function cellShown(cell, metric) {
  const shown = element("div", { class: "look" }, element("h3", {}, `Cell ${cell.cell}: ${cell.where}`));
  if (cell.reason !== null) {
    shown.append(element("p", {}, `No result: ${cell.reason}`));
    return shown;
  }
  const known = cell.metrics[metric];
  const theory = told.metrics[metric].theory;
  const facts = [["mean " + metric, known.mean]];
  if (known.spread) facts.push(["nine in ten within", known.spread]);
  if (theory && known.means[1] !== null) facts.push([theory, known.means[1]]);
  if (known.claimed) facts.push(["claim", known.claimed]);
  facts.push(["simulated", cell.workloads]);
  const list = element("dl");
  for (const [name, value] of facts) list.append(element("dt", {}, name), element("dd", {}, value));
  const verdicts = element("ul");
  for (const verdict of cell.verdicts) {
    const words = element("span", {}, verdict.claim, element("small", {}, verdict.found));
    verdicts.append(element("li", {}, element("b", { class: `badge ${verdict.is}` }, verdict.is), words));
  }
  shown.append(histogram(cell, metric), element("div", {}, list, verdicts));
  return shown;
}

function histogram(cell, metric) {
  const { edges, counts, bounds, values, means, one_in } = cell.metrics[metric];
  if (!counts?.length) return element("p", {}, "The page has no histogram of this cell; its rows are in replicates/.");
  const [width, height, left, right, top, foot] = [480, 230, 8, 472, 30, 190];
  const span = edges.at(-1) - edges[0];
  const near = (bounds ?? []).filter((bound) => bound !== null && bound > edges[0] - span && bound < edges.at(-1) + span);
  const low = Math.min(edges[0], ...near) - 0.03 * span;
  const high = Math.max(edges.at(-1), ...near) + 0.03 * span;
  const x = (value) => left + ((right - left) * (value - low)) / (high - low);
  const most = Math.max(...counts);
  const y = (count) => foot - ((foot - top) * count) / most;
  const title = `Histogram of ${metric} over ${cell.workloads} at ${cell.where}, mean ${means[0]}`;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  counts.forEach((count, bin) => {
    const [from, to] = [edges[bin], edges[bin + 1]];
    const middle = (from + to) / 2;
    const out = bounds && ((bounds[0] !== null && middle < bounds[0]) || (bounds[1] !== null && middle > bounds[1]));
    const place = { x: x(from), width: x(to) - x(from), y: y(count), height: foot - y(count) };
    const bar = drawn("rect", { class: out ? "bar out" : "bar", ...place });
    bar.append(drawn("title", {}, `${shortNumber(from)} to ${shortNumber(to)}: ${count.toLocaleString("en")}`));
    if (count) svg.append(bar);
  });
  svg.append(drawn("line", { x1: left, x2: right, y1: foot, y2: foot }));
  for (const tick of ticks(low, high)) {
    svg.append(drawn("line", { x1: x(tick), x2: x(tick), y1: foot, y2: foot + 4 }));
    svg.append(drawn("text", { x: x(tick), y: foot + 17, "text-anchor": "middle" }, shortNumber(tick)));
  }
  svg.append(drawn("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, told.metrics[metric].title));
  const sample = one_in ? `, one in ${one_in} workloads` : "";
  const highest = `highest bar: ${most.toLocaleString("en")}${sample}`;
  const atRight = x(values[0]) > (left + right) / 2;
  svg.append(drawn("text", { x: atRight ? left : right, y: 12, "text-anchor": atRight ? "start" : "end" }, highest));
  for (const bound of near) svg.append(drawn("line", { class: "bound", x1: x(bound), x2: x(bound), y1: top - 8, y2: foot }));
  svg.append(drawn("line", { class: "mean", x1: x(values[0]), x2: x(values[0]), y1: top - 12, y2: foot }));
  const anchor = atRight ? { x: x(values[0]) + 4, "text-anchor": "end" } : { x: x(values[0]) - 4, "text-anchor": "start" };
  svg.append(drawn("text", { class: "mean", y: 12, ...anchor }, `mean ${means[0]}`));
  return svg;
}

function ticks(low, high) {
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => rough <= times * power);
  const found = [];
  for (let place = Math.ceil(low / step); place * step <= high; place += 1) found.push(place * step);
  return found;
}

function shortNumber(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

// The heat map: any two axes across and up, a menu for each of the others, and three things to show.

function heatMap(figure) {
  const metric = figure.dataset.metric;
  const start = cellNumbered.get(told.main);
  const state = { x: Number(figure.dataset.x), y: Number(figure.dataset.y), at: [...start.at], view: 0, cell: start };
  const place = {
    menus: element("div", { class: "menus" }), finding: element("h3"), grid: element("div", { class: "scroll" }),
    key: element("div", { class: "key" }), cell: element("div", { "aria-live": "polite" }),
  };
  const draw = () => {
    const used = place.menus.querySelector("select:focus")?.dataset.menu;
    place.menus.replaceChildren(...menus(state, metric, draw));
    [...place.menus.querySelectorAll("select")].find((menu) => menu.dataset.menu === used)?.focus();
    const shown = told.cells.filter((cell) => cell.at.every((v, axis) => isFree(axis, state) || v === state.at[axis]));
    const known = told.cells.map((cell) => cell.metrics[metric].values[state.view]).filter((value) => value !== null);
    const color = coloring(known, state.view);
    place.finding.textContent = finding(shown, metric, state.view);
    place.grid.replaceChildren(gridOf(shown, state, metric, color, select));
    place.key.replaceChildren(...keyOf(known, color, shown, state, metric));
  };
  const select = (cell) => {
    state.cell = cell;
    for (const button of place.grid.querySelectorAll("button"))
      button.setAttribute("aria-pressed", String(Number(button.dataset.cell) === cell.cell));
    place.cell.replaceChildren(cellShown(cell, metric));
    return place.cell;
  };
  draw();
  select(start);
  figure.prepend(element("div", { class: "explore" }, place.finding, place.menus, place.grid, place.key, place.cell));
  figure.classList.add("live");
}

function isFree(axis, state) {
  return axis === state.x || axis === state.y;
}

function menus(state, metric, draw) {
  const found = [];
  const names = told.axes.map((axis) => axis.name);
  const choose = (key, other) => (chosen) => {
    if (chosen === state[other]) state[other] = state[key];
    state[key] = chosen;
    draw();
  };
  const several = names.filter((_, axis) => told.axes[axis].values.length > 1).length > 2;
  if (several) {
    found.push(menu("across", names, state.x, choose("x", "y")));
    found.push(menu("up", names, state.y, choose("y", "x")));
  }
  told.axes.forEach((axis, place) => {
    if (isFree(place, state) || axis.values.length < 2) return;
    found.push(menu(axis.name, axis.values, state.at[place], (value) => {
      state.at[place] = value;
      draw();
    }));
  });
  if (told.cells.some((cell) => cell.metrics[metric].values[1] !== null))
    found.push(menu("show", VIEWS, state.view, (view) => {
      state.view = view;
      draw();
    }));
  return found;
}

function menu(name, values, chosen, change) {
  const select = element("select", { "data-menu": name });
  values.forEach((value, place) => {
    const option = element("option", { value: place }, value);
    option.selected = place === chosen;
    select.append(option);
  });
  select.addEventListener("change", () => change(Number(select.value)));
  return element("label", {}, name, select);
}

function finding(shown, metric, view) {
  const known = shown.filter((cell) => cell.metrics[metric].values[view] !== null);
  const { subject, theory } = told.metrics[metric];
  const what = [subject, `For ${subject.toLowerCase()}, ${theory}`, `Simulated less ${theory}: ${subject.toLowerCase()}`][view];
  if (!known.length) return `${what} is not known: no cell here has a result`;
  const value = (cell) => cell.metrics[metric].values[view];
  const low = known.reduce((a, b) => (value(b) < value(a) ? b : a));
  const high = known.reduce((a, b) => (value(b) > value(a) ? b : a));
  const said = (cell) => `${cell.metrics[metric].means[view]} at ${cell.where}`;
  return low === high ? `${what} is ${said(low)}` : `${what} runs from ${said(low)} to ${said(high)}`;
}

function gridOf(shown, state, metric, color, select) {
  const [across, up] = [told.axes[state.x], told.axes[state.y]];
  const table = element("table", { class: "grid" });
  table.classList.toggle("wide", across.values.length > 10);
  table.classList.toggle("tall", up.values.length > 8);
  table.append(element("caption", { class: "hidden" }, `${metric} by ${up.name} and ${across.name}; arrow keys move`));
  const byPlace = new Map(shown.map((cell) => [`${cell.at[state.x]} ${cell.at[state.y]}`, cell]));
  const order = up.values.map((_, place) => place);
  if (up.upwards) order.reverse();
  const body = element("tbody");
  for (const row of order) {
    const line = element("tr", {}, element("th", { scope: "row" }, up.values[row]));
    across.values.forEach((_, column) => {
      const cell = byPlace.get(`${column} ${row}`);
      line.append(element("td", {}, ...(cell ? [tile(cell, state, metric, color, select)] : [])));
    });
    body.append(line);
  }
  const name = element("th", { class: "name", scope: "col" }, up.name);
  const head = element("tr", {}, name, ...across.values.map((value) => element("th", { scope: "col" }, value)));
  const foot = element("th", { class: "name", colspan: across.values.length }, across.title);
  table.append(element("thead", {}, head), body, element("tfoot", {}, element("tr", {}, element("td"), foot)));
  const buttons = [...table.querySelectorAll("button")];
  (buttons.find((button) => button.ariaPressed === "true") ?? buttons[0])?.setAttribute("tabindex", "0");
  table.addEventListener("keydown", (event) => moveFocus(event, table));
  return table;
}

function tile(cell, state, metric, color, select) {
  const { values, tiles } = cell.metrics[metric];
  const value = values[state.view];
  const button = element("button", { type: "button", "data-cell": cell.cell, tabindex: -1 });
  button.setAttribute("aria-pressed", String(cell === state.cell));
  button.textContent = value === null ? "\u2013" : tiles[state.view];
  button.setAttribute("aria-label", `${cell.where}: ${value === null ? "no result" : button.textContent}`);
  if (value === null) button.classList.add("hole");
  else [button.style.background, button.style.color] = color(value);
  const worst = worstVerdict(cell, metric);
  if (state.view === 0 && value !== null && worst && worst !== "holds") button.classList.add(worst);
  button.addEventListener("click", () => select(cell).scrollIntoView({ block: "nearest" }));
  for (const shows of ["pointerenter", "focus"]) button.addEventListener(shows, () => showTip(button, cell, metric));
  for (const hides of ["pointerleave", "blur"]) button.addEventListener(hides, hideTip);
  return button;
}

function worstVerdict(cell, metric) {
  return ["fails", "undecided", "holds"].find((verdict) => cell.verdicts.some((one) => one.is === verdict && one.metric === metric));
}

function moveFocus(event, table) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (event.key === "Escape") hideTip();
  if (!step || event.target.tagName !== "BUTTON") return;
  const entry = event.target.parentElement;
  const row = table.tBodies[0].rows[entry.parentElement.sectionRowIndex + step[0]];
  const next = row?.cells[entry.cellIndex + step[1]]?.querySelector("button");
  event.preventDefault();
  if (!next) return;
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function coloring(known, view) {
  const most = Math.max(...known.map(Math.abs));
  const [low, high] = view === 2 ? [-most, most] : [Math.min(...known), Math.max(...known)];
  const ramp = view === 2 ? ORANGE_TO_VIOLET : YELLOW_TO_BLUE;
  const channels = ramp.map((code) => [1, 3, 5].map((at) => parseInt(code.slice(at, at + 2), 16)));
  const color = (value) => {
    const place = high > low ? ((value - low) / (high - low)) * (ramp.length - 1) : (ramp.length - 1) / 2;
    const below = Math.min(Math.floor(place), ramp.length - 2);
    const mixed = channels[below].map((c, i) => c + (channels[below + 1][i] - c) * (place - below));
    const light = mixed.map((c) => (c / 255) ** 2.2);
    const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
    return [`rgb(${mixed.map(Math.round).join(" ")})`, luminance < 0.19 ? "#ffffff" : "#10181f"];
  };
  return Object.assign(color, { low, high, ramp });
}

function keyOf(known, color, shown, state, metric) {
  const found = [];
  if (known.length > 1 && color.high > color.low) {
    const ramp = element("span", { class: "ramp" });
    ramp.style.background = `linear-gradient(to right, ${color.ramp.join(", ")})`;
    found.push(element("span", {}, shortNumber(color.low), ramp, shortNumber(color.high)));
  }
  const fails = shown.filter((cell) => worstVerdict(cell, metric) === "fails").length;
  if (fails && state.view === 0)
    found.push(element("span", {}, element("span", { class: "corner" }), ` a claim fails (${fails} of ${shown.length})`));
  if (shown.some((cell) => cell.reason !== null)) found.push(element("span", {}, "\u2013 no result"));
  found.push(element("span", {}, "click a cell for its distribution"));
  return found;
}

const tip = element("div", { class: "tip", role: "tooltip", id: "tip" });

function showTip(button, cell, metric) {
  const known = cell.metrics[metric];
  const lines = [cell.where];
  if (cell.reason !== null) lines.push(`No result: ${cell.reason}`);
  else {
    lines.push(`mean ${metric}: ${known.mean}`);
    if (known.means[1] !== null) lines.push(`${told.metrics[metric].theory}: ${known.means[1]}; difference ${known.means[2]}`);
    lines.push(cell.workloads);
    for (const verdict of cell.verdicts) if (verdict.is !== "holds") lines.push(`${verdict.is}: ${verdict.claim}`);
  }
  tell(lines, button.getBoundingClientRect());
  button.setAttribute("aria-describedby", "tip");
}

function tell(lines, box, beside = false) {
  tip.replaceChildren(...lines.map((line) => element("p", {}, line)));
  document.body.append(tip);
  const own = tip.getBoundingClientRect();
  const right = box.right + 12 + own.width < innerWidth ? box.right + 12 : box.left - own.width - 12;
  const left = beside ? right : box.left + box.width / 2 - own.width / 2;
  const above = box.top - own.height - 8 > 0 ? box.top - own.height - 8 : box.bottom + 8;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - own.width - 4))}px`;
  tip.style.top = `${beside ? Math.max(4, box.top - own.height / 2) : above}px`;
}

function hideTip() {
  tip.remove();
}

// Still pictures: the point or bar nearest to the pointer tells what it is, with those of other lines above and below.

const NEAR = 28; // pixels

function tellsMarks(picture) {
  const marks = [...picture.querySelectorAll("path[aria-label]")];
  const leave = () => {
    marks.forEach((mark) => mark.classList.remove("near"));
    hideTip();
  };
  const point = (event) => {
    const boxes = marks.map((mark) => mark.getBoundingClientRect());
    const far = boxes.map((box) => away(box, event));
    const nearest = far.indexOf(Math.min(...far));
    leave();
    if (far[nearest] > NEAR) return;
    const middle = (box) => box.left + box.width / 2;
    const shown = marks.filter((_, place) => Math.abs(middle(boxes[place]) - middle(boxes[nearest])) < 1);
    shown.forEach((mark) => mark.classList.add("near"));
    shown.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top);
    tell(together(shown.map((mark) => mark.getAttribute("aria-label"))), boxes[nearest], true);
  };
  if (!marks.length) return;
  for (const shows of ["pointermove", "pointerdown"]) picture.addEventListener(shows, point);
  picture.addEventListener("pointerleave", leave);
}

function together(labels) {
  const [head] = labels[0].split("; ");
  const all = labels.every((label) => label.startsWith(`${head}; `));
  return all ? [head, ...labels.map((label) => label.slice(head.length + 2))] : labels;
}

function away(box, { clientX, clientY }) {
  const beside = Math.max(box.left - clientX, 0, clientX - box.right);
  return Math.hypot(beside, Math.max(box.top - clientY, 0, clientY - box.bottom));
}

addThemeButton();
document.querySelectorAll("table.rows").forEach(sortable);
const cellTable = document.querySelector("#cells table.rows");
if (told.cells.length > 5) addFilter(cellTable);
addOpeners(cellTable);
document.querySelectorAll("figure.tiles").forEach(heatMap);
document.querySelectorAll("figure .still svg").forEach(tellsMarks);
document.addEventListener("scroll", hideTip, { passive: true, capture: true });
