"use strict";
// What moves on the page: charts that follow sliders, their tables, what figures share, and the list of claims.

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const shown = value => value === null ? "none" : value.toFixed(4).replace(/^-(0\.0*)$/, "$1");
const safe = words => String(words).replace(/[&<>"']/g, sign => `&#${sign.charCodeAt(0)};`);
const plusMinus = (mean, spread) => `${shown(mean)} ± ${shown(spread)}`;

// ---- drawing -------------------------------------------------------------------------------------------------------

function range(values, margin) {
  const low = Math.min(...values), high = Math.max(...values), pad = margin * (high - low || 1);
  return [low - pad, high + pad];
}

// Round numbers within a range, a handful.
function ticksIn([low, high]) {
  const power = 10 ** Math.floor(Math.log10((high - low) / 3)), step = [5, 2, 1].find(one => one * power * 3 <= high - low) * power;
  const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
  return Array.from({length: count}, (_, i) => [(first + i) * step, String(Number(((first + i) * step).toPrecision(6)))]);
}

// Curves as SVG in an element. x, y: {label, range, ticks: [[place, text]]}. curves: {method, look, points: [[x, y, x's
// spread low, x's spread high, y's spread]], said: words for each point, large: the points to stand out}. at: where the
// vertical line is.
function chart(element, x, y, curves, at) {
  const width = Math.max(element.clientWidth, 300), left = 52, right = width - 12, top = 10, foot = 276;
  const across = value => left + (right - left) * (value - x.range[0]) / (x.range[1] - x.range[0]);
  const down = value => foot + (top - foot) * (value - y.range[0]) / (y.range[1] - y.range[0]);
  const parts = [];
  let free = -Infinity;
  for (const [place, text] of x.ticks) {
    parts.push(`<path class="grid" d="M${across(place)} ${top}V${foot}"/>`);
    if (across(place) < free) continue;  // it would lie upon the one before
    parts.push(`<text x="${across(place)}" y="${foot + 16}" text-anchor="middle">${text}</text>`);
    free = across(place) + 40;
  }
  for (const [place, text] of y.ticks) parts.push(`<path class="grid" d="M${left} ${down(place)}H${right}"/>`,
    `<text class="y" x="${left - 6}" y="${down(place) + 4}" text-anchor="end">${text}</text>`);
  parts.push(`<path class="at" d="M${across(at)} ${top}V${foot}"/>`);
  for (const {method, look, points, said, large} of curves) {
    const placed = points.map(([px, py]) => `${across(px)} ${down(py)}`);
    parts.push(`<g data-method="${safe(method)}" style="color:${look.color}">`);
    parts.push(`<path class="line" stroke-width="${look.width}" stroke-dasharray="${look.dash}" d="M${placed.join("L")}"/>`);
    for (const [px, py, low, high, spread] of points) if (spread !== undefined) parts.push(
      `<path class="bar" d="M${across(low)} ${down(py)}H${across(high)}M${across(px)} ${down(py - spread)}V${down(py + spread)}"/>`);
    points.forEach(([px, py], i) => parts.push(large
      ? `<text class="mark${large.includes(i) ? " large" : ""}" data-said="${safe(said[i])}" x="${across(px)}" ` +
        `y="${down(py)}" text-anchor="middle" dominant-baseline="central">${look.symbol}</text>`
      : `<circle class="place" data-said="${safe(said[i])}" cx="${across(px)}" cy="${down(py)}" r="1"/>`));
    parts.push("</g>");
  }
  parts.push(`<text x="${(left + right) / 2}" y="${foot + 36}" text-anchor="middle">${safe(x.label)}</text>`,
    `<text x="14" y="${(top + foot) / 2}" text-anchor="middle" transform="rotate(-90 14 ${(top + foot) / 2})">${safe(y.label)}</text>`);
  element.innerHTML = `<svg viewBox="0 0 ${width} 316" width="${width}" height="316">${parts.join("")}</svg>`;
  hide(withLegend(element));
}

function setValue(input, words) {
  byId(`${input.id}-value`).textContent = words;
  input.setAttribute("aria-valuetext", words);
}

function fillTable(table, head, rows) {
  const cell = (tag, text) => Object.assign(document.createElement(tag), {textContent: text});
  const line = cells => { const row = document.createElement("tr"); row.append(...cells); return row; };
  const top = document.createElement("thead"), body = document.createElement("tbody");
  top.append(line(head.map(text => cell("th", text))));
  body.append(...rows.map(texts => line(texts.map(text => cell("td", text)))));
  table.replaceChildren(top, body);
}

// ---- what figures share ------------------------------------------------------------------------------------------------

// Functions that give the rows behind a drawn plot, by its id.
const CSV = {};

// What stands together under one legend.
const withLegend = element => element.closest(".together:has([data-hides])");

// A legend's methods that are switched off are hidden in everything that it stands together with.
function hide(scope) {
  const off = new Set([...scope.querySelectorAll('[data-hides][aria-pressed="false"]')].map(one => one.dataset.hides));
  for (const one of scope.querySelectorAll("svg [data-method]")) one.style.display = off.has(one.dataset.method) ? "none" : "";
}

const pressed = button => button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");

function figures() {
  for (const button of document.querySelectorAll("[data-hides]")) button.addEventListener("click", () => {
    pressed(button);
    hide(withLegend(button));
  });
  for (const button of document.querySelectorAll(".enlarge")) button.addEventListener("click", () => {
    pressed(button);
    const large = button.closest("figure").classList.toggle("large");
    button.textContent = large ? "Reduce" : "Enlarge";
    dispatchEvent(new Event("resize"));
  });
  const quoted = cell => cell === null ? "" : /[",\n]/.test(cell) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell);
  for (const link of document.querySelectorAll("[data-of]")) link.addEventListener("click", () => {
    const lines = CSV[link.dataset.of]().map(row => row.map(quoted).join(",") + "\n");
    link.href = URL.createObjectURL(new Blob(lines, {type: "text/csv"}));
  });
}

// Beside the pointer, what the nearest point says of itself.
const NEAR = 14;

function saying() {
  const tip = byId("tip");
  function say(event) {
    const drawn = event.target.closest?.("figure svg");
    let nearest = null, least = NEAR;
    for (const point of drawn ? drawn.querySelectorAll("[data-said]") : []) {
      const box = point.getBoundingClientRect();
      const far = Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
      if (box.width && far < least) [nearest, least] = [point, far];
    }
    tip.hidden = !nearest;
    if (!nearest) return;
    tip.textContent = nearest.dataset.said;
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 12, document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(0, event.clientY - tip.offsetHeight - 12)}px`;
  }
  for (const name of ["pointermove", "pointerdown"]) addEventListener(name, say);
}

// On paper nothing is folded.
function printing() {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
}

// ---- the controlled experiment -----------------------------------------------------------------------------------------

const TICKS = [0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995];
const stretch = correctness => -Math.log10(1 - Math.min(Math.max(correctness, 0), 0.99999));

function tradeoff({steps, settings, coverage, looks, order, marked}) {
  const stepInput = byId("tradeoff-step"), targetInput = byId("tradeoff-target");
  const panels = {coverage, kl: "Conditional KL [nats]"};
  const xRange = range(settings.flatMap(s => s.correctness).filter(p => p !== null).map(stretch), 0.04);
  const x = {label: "Correctness (axis stretched towards 1)", range: xRange,
    ticks: TICKS.map(tick => [stretch(tick), String(tick)]).filter(([place]) => place >= xRange[0] && place <= xRange[1])};

  function update() {
    const step = steps[Number(stepInput.value)], target = Number(targetInput.value);
    const place = setting => setting.step.indexOf(step);
    const there = order.map(method => settings.filter(s => s.method === method && s.correctness[place(s)] !== null)).filter(s => s.length);
    // Each method's coefficient whose correctness at the shown step is closest to the target.
    const matched = there.map(of => of.reduce((best, s) => {
      const far = one => Math.abs(one.correctness[place(one)] - target);
      return far(s) < far(best) ? s : best;
    }));
    for (const [metric, label] of Object.entries(panels)) {
      const yRange = range(settings.flatMap(s => s[metric]).filter(value => value !== null), 0.05);
      const curves = there.map((of, i) => ({method: of[0].method, look: looks[of[0].method], large: [of.indexOf(matched[i])],
        said: of.map(s => [looks[s.method].label, `β = ${s.beta}`, ...[["Correctness", "correctness"], [label, metric]].map(
          ([name, key]) => `${name} ${plusMinus(s[key][place(s)], s[`${key}_half_width`][place(s)])}`)].join(", ")),
        points: of.map(s => {
          const p = s.correctness[place(s)], spread = s.correctness_half_width[place(s)];
          return [stretch(p), s[metric][place(s)], stretch(p - spread), stretch(p + spread), s[`${metric}_half_width`][place(s)]];
        })}));
      chart(byId(`tradeoff-${metric}`), x, {label, range: yRange, ticks: ticksIn(yRange)}, curves, stretch(target));
    }
    const far = s => Math.abs(s.correctness[place(s)] - target) > marked;
    const row = (s, star) => [looks[s.method].label, s.beta + star, ...["correctness", "coverage", "covered", "kl"].map(
      key => plusMinus(s[key][place(s)], s[`${key}_half_width`][place(s)]))];
    const head = ["Method", "β", "Correctness", coverage, `${coverage} under pi+`, "Conditional KL"];
    setValue(stepInput, String(step));
    setValue(targetInput, target.toFixed(3));
    fillTable(byId("tradeoff-matched"), head, matched.map(s => row(s, far(s) ? "*" : "")));
    fillTable(byId("tradeoff-points"), head, there.flat().map(s => row(s, "")));
  }
  const keys = ["correctness", "coverage", "covered", "kl"].flatMap(key => [key, `${key}_half_width`]);
  const numbers = () => [["method", "beta", "step", ...keys], ...settings.flatMap(
    s => s.step.map((step, i) => [s.method, s.beta, step, ...keys.map(key => s[key][i])]))];
  for (const metric of Object.keys(panels)) CSV[`tradeoff-${metric}`] = numbers;
  return [update, stepInput, targetInput];
}

// ---- population optima -------------------------------------------------------------------------------------------------

function optima({q, beta, curves, looks}) {
  const qInput = byId("optima-q"), betaInput = byId("optima-beta"), logs = beta.map(Math.log10);
  const x = {label: "Coefficient β", range: [logs[0], logs.at(-1)], ticks: [-3, -2, -1, 0, 1, 2].map(power => [power, String(10 ** power)])};
  const y = {label: "Z*", range: [-0.03, 1.03], ticks: ticksIn([0, 1])};

  function update() {
    const here = Number(qInput.value), at = Number(betaInput.value);
    // Others' curves coincide with CoKL's, which lies below them and is wider than they are.
    const lowest = Object.keys(curves).sort((one, other) => (other === "cokl") - (one === "cokl"));
    chart(byId("optima-curves"), x, y, lowest.map(method => ({method, points: logs.map((log, i) => [log, curves[method][here][i]]),
      said: beta.map((one, i) => `${looks[method].label}, q = ${q[here]}, β = ${one.toPrecision(3)}, Z* ${shown(curves[method][here][i])}`),
      look: {...looks[method], width: method === "cokl" ? 7 : 2}})), logs[at]);
    setValue(qInput, String(q[here]));
    setValue(betaInput, beta[at].toPrecision(3));
    fillTable(byId("optima-table"), ["Method", "Z*", "1 − Z*", "Z* − q"], Object.entries(curves).map(([method, grid]) => {
      const mass = grid[here][at];
      return [looks[method].label, ...[mass, 1 - mass, mass - q[here]].map(shown)];
    }));
  }
  CSV["optima-curves"] = () => [["method", "q", "beta", "optimum"], ...Object.entries(curves).flatMap(
    ([method, grid]) => grid.flatMap((row, i) => row.map((mass, j) => [method, q[i], beta[j], mass])))];
  return [update, qInput, betaInput];
}

// ---- the list of claims ----------------------------------------------------------------------------------------------

function claims() {
  const search = byId("claims-search"), verdict = byId("claims-verdict"), entries = [...document.querySelectorAll(".claim")];
  function update() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const entry of entries) {
      const has = entry.textContent.toLowerCase();
      entry.hidden = (verdict.value && entry.dataset.verdict !== verdict.value) || !words.every(word => has.includes(word));
    }
    byId("claims-count").textContent = `${entries.filter(entry => !entry.hidden).length} of ${entries.length} claims`;
  }
  return [update, search, verdict];
}

figures();
saying();
printing();
for (const [update, ...inputs] of [...(DATA.tradeoff ? [tradeoff(DATA.tradeoff)] : []), optima(DATA.optima), claims()]) {
  for (const input of inputs) input.addEventListener("input", update);
  addEventListener("resize", update);
  update();
}
