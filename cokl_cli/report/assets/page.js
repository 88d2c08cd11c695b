"use strict";
// Everything that moves on the page. Figures come from Python as data; those that follow a slider are built here.

const DATA = JSON.parse(document.getElementById("data").textContent);
const COARSE = matchMedia("(pointer: coarse)").matches;
const figures = {};  // element id -> function that returns {data, layout}
const drawn = new Set();
const isolated = new WeakMap();  // member of a section -> method

const byId = id => document.getElementById(id);
const shown = (value, digits) => value === null ? "none" : value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1");
const plusMinus = (mean, spread, digits) => `${shown(mean, digits)} ± ${shown(spread, digits)}`;

// ---- drawing -------------------------------------------------------------------------------------------------------

const dark = () => document.documentElement.dataset.theme === "dark";
const ink = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function themed(figure) {
  const text = JSON.stringify(figure);
  return JSON.parse(dark() ? text.replace(/"(#[0-9a-fA-F]{6})"/g, (_, c) => `"${DATA.dark[c.toLowerCase()] || c}"`) : text);
}

function axesOf(layout, change) {
  const names = Object.keys(layout).filter(name => /^[xy]axis\d*$/.test(name));
  for (const name of new Set([...names, "xaxis", "yaxis"])) layout[name] = change(layout[name] || {});
}

function draw(id) {
  const element = byId(id), member = element.closest(".member"), figure = themed(figures[id]());
  const only = isolated.get(member);
  for (const trace of figure.data) {
    if (only && trace.meta?.method && trace.meta.method !== only) {
      trace.opacity = 0.08;
      trace.hoverinfo = "skip";
      delete trace.hovertemplate;
    }
  }
  const layout = {...figure.layout, template: null, showlegend: false, autosize: true, hovermode: "closest",
    dragmode: COARSE ? false : "zoom", paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: figure.layout.margin || {l: 60, r: 10, t: 10, b: 50}, font: {family: getComputedStyle(document.body).fontFamily, color: ink("ink"), size: 12}};
  axesOf(layout, axis => ({gridcolor: ink("grid"), zerolinecolor: ink("grid"), linecolor: ink("rule"), automargin: true, ...axis}));
  const config = {responsive: true, displaylogo: false, displayModeBar: COARSE ? false : "hover", ...figure.config};
  Plotly.react(element, figure.data, layout, config);
  if (!drawn.has(id)) {
    drawn.add(id);
    element.on("plotly_click", event => {
      const method = event.points[0].data.meta?.method;
      if (method) isolate(member, method);
    });
    if (figures[id].moved) element.on("plotly_relayout", figures[id].moved);
  }
}

function redraw(ids) {
  for (const id of ids) if (drawn.has(id)) draw(id);
}

function isolate(member, method) {
  const only = isolated.get(member) === method ? null : method;
  isolated.set(member, only);
  for (const chip of member.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", String(chip.dataset.method === only));
  redraw([...member.querySelectorAll(".plot")].map(plot => plot.id));
}

// ---- the controlled experiment -----------------------------------------------------------------------------------------

const TICKS = [0, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995];
const stretch = correctness => correctness === null ? null : -Math.log10(1 - Math.min(correctness, 0.99999));
const unstretch = position => 1 - 10 ** -position;

function range(values, margin) {
  const low = Math.min(...values), high = Math.max(...values), pad = margin * (high - low || 1);
  return [low - pad, high + pad];
}

function fillTable(table, head, rows) {
  const cell = (tag, text, attributes = {}) => Object.assign(document.createElement(tag), {textContent: text, ...attributes});
  const line = cells => { const row = document.createElement("tr"); row.append(...cells); return row; };
  const top = document.createElement("thead"), body = document.createElement("tbody");
  top.append(line(head.map(text => cell("th", text, {scope: "col"}))));
  body.append(...rows.map(texts => line(texts.map(text => cell("td", text)))));
  table.replaceChildren(top, body);
}

function tradeoff(name, sweep) {
  const panels = {coverage: sweep.coverage, kl: "Conditional KL [nats]"};
  const trained = sweep.settings.filter(setting => setting.method !== "reference");
  const reference = sweep.settings.find(setting => setting.method === "reference");
  const stepInput = byId(`${name}-step`), targetInput = byId(`${name}-target`), zoomInput = byId(`${name}-zoom`);
  const xRange = range(sweep.settings.flatMap(s => s.correctness).filter(p => p !== null).map(stretch), 0.04);
  const state = {step: sweep.steps.length - 1, target: sweep.target};

  const place = setting => setting.step.indexOf(sweep.steps[state.step]);
  const label = setting => sweep.looks[setting.method].label;
  const ofMethod = method => trained.filter(setting => setting.method === method);

  // Each regularizer's coefficient whose correctness at the shown step is closest to the target.
  function matched() {
    return sweep.order.map(method => ofMethod(method).reduce((best, setting) => {
      const at = one => one.correctness[place(one)], far = one => at(one) === null ? Infinity : Math.abs(at(one) - state.target);
      return far(setting) < far(best) ? setting : best;
    }));
  }

  // Of the zoomed panel: correctness around the target, and the range of what is there.
  function near(metric) {
    const x = [stretch(Math.max(state.target - 0.06, 0)), Math.min(xRange[1], stretch(Math.min(state.target + 0.035, 0.9999)))];
    const inside = trained.map(s => [s.correctness[place(s)], s[metric][place(s)]])
      .filter(([p, y]) => p !== null && y !== null && stretch(p) >= x[0] && stretch(p) <= x[1]).map(([, y]) => y);
    return {x, y: inside.length ? range(inside, 0.1) : null};
  }

  function panel(metric) {
    const chosen = new Set(matched()), zoomed = zoomInput.value === "near" ? near(metric) : null;
    const whole = range(sweep.settings.flatMap(s => s[metric]).filter(value => value !== null), 0.05);
    const xShown = zoomed ? zoomed.x : xRange, yShown = zoomed?.y || whole;
    // The matched points have their β written at them, others where it does not lie upon another one.
    const named = new Set(), where = s => [stretch(s.correctness[place(s)]) / (xShown[1] - xShown[0]), s[metric][place(s)] / (yShown[1] - yShown[0])];
    for (const s of [...chosen, ...(zoomed ? trained : [])]) {
      const [x, y] = where(s), free = [...named].every(other => Math.abs(x - where(other)[0]) > 0.1 || Math.abs(y - where(other)[1]) > 0.05);
      if (s.beta && free) named.add(s);
    }
    const traces = sweep.order.map(method => {
      const {line, marker, label: called} = sweep.looks[method], points = ofMethod(method);
      const at = key => points.map(setting => setting[key][place(setting)]);
      const p = at("correctness"), spread = at("correctness_std");
      return {
        type: "scatter", mode: points.length > 1 ? "lines+markers+text" : "markers", name: called, meta: {method},
        text: points.map(s => named.has(s) ? `β ${s.beta}` : ""), textposition: "top center",
        textfont: {size: 10, color: marker.color},
        x: p.map(stretch), y: at(metric), line,
        marker: {...marker, opacity: 1, size: points.map(s => chosen.has(s) ? 14 : 8), line: {width: points.map(s => chosen.has(s) ? 2 : 0), color: ink("ink")}},
        error_x: {type: "data", symmetric: false, thickness: 1, width: 0, color: marker.color,
          array: p.map((value, i) => stretch(value + spread[i]) - stretch(value)),
          arrayminus: p.map((value, i) => stretch(value) - stretch(value - spread[i]))},
        error_y: {type: "data", array: at(`${metric}_std`), thickness: 1, width: 0, color: marker.color},
        customdata: points.map((s, i) => [s.beta, plusMinus(p[i], spread[i], 4), plusMinus(s[metric][place(s)], s[`${metric}_std`][place(s)], 4)]),
        hovertemplate: `<b>${called}</b>, β = %{customdata[0]}<br>correctness %{customdata[1]}<br>${panels[metric]} %{customdata[2]}` +
          `<br>(standard deviation of ${sweep.seeds} seed${sweep.seeds === 1 ? "" : "s"})<extra></extra>`,
      };
    });
    if (reference) traces.push({
      type: "scatter", mode: "markers", x: [stretch(reference.correctness[0])], y: [reference[metric][0]],
      marker: {...sweep.looks.reference.marker, size: 13}, meta: {method: "reference"},
      hovertemplate: `<b>Reference</b><br>correctness ${shown(reference.correctness[0], 4)}<br>${panels[metric]} %{y:.4f}<extra></extra>`,
    });
    // The matched line lies under the points, whose tooltips it would take; what can be dragged is its lower end.
    const at = stretch(state.target);
    traces.unshift({type: "scatter", mode: "lines", meta: {}, x: [at, at], y: [whole[0] - 9, whole[1] + 9], hoverinfo: "skip",
      line: {color: ink("link"), width: 2, dash: "dash"}});
    const ticks = TICKS.filter(tick => stretch(tick) >= xShown[0] && stretch(tick) <= xShown[1]);
    const apart = (innerWidth < 600 ? 0.13 : 0.075) * (xShown[1] - xShown[0]);
    const spaced = ticks.reduceRight((kept, tick) => kept.length && stretch(kept[0]) - stretch(tick) < apart ? kept : [tick, ...kept], []);
    return {
      data: traces,
      layout: {
        xaxis: {title: {text: "Correctness (axis stretched towards 1)"}, range: xShown, tickvals: spaced.map(stretch), ticktext: spaced.map(String), tickangle: 0},
        yaxis: {title: {text: panels[metric]}, range: yShown},
        shapes: [{type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 0.09, line: {color: ink("link"), width: 8}}],
        annotations: [{xref: "paper", yref: "paper", x: 0.99, xanchor: "right", showarrow: false, font: {color: ink("good")},
          ...(metric === "kl" ? {y: 0.12, text: "better ↘"} : {y: 0.99, text: "better ↗"})}],
      },
      config: {edits: {shapePosition: true}},
    };
  }

  function dynamics(metric) {
    const traces = matched().flatMap(setting => {
      const {line, marker, label: called} = sweep.looks[setting.method];
      const common = {type: "scatter", meta: {method: setting.method}, x: setting.step, line};
      const named = `<b>${called}</b>, β = ${setting.beta}<br>step %{x}: `;
      if (setting.each) return setting.each.map((seed, i) => ({
        ...common, mode: "lines", y: seed[metric], hovertemplate: `${named}%{y:.4f} (seed ${i + 1})<extra></extra>`}));
      const mean = setting[metric], spread = setting[`${metric}_std`];
      const edge = {...common, mode: "lines", line: {width: 0, color: line.color}, hoverinfo: "skip"};
      return [
        {...edge, y: mean.map((m, i) => m - spread[i])},
        {...edge, y: mean.map((m, i) => m + spread[i]), fill: "tonexty", fillcolor: translucent(line.color)},
        {...common, mode: "lines+markers", y: mean, marker: {...marker, size: 6}, customdata: spread,
          hovertemplate: `${named}%{y:.4f} ± %{customdata:.4f}<extra></extra>`},
      ];
    });
    return {data: traces, layout: {xaxis: {title: {text: "Training step"}}, yaxis: {title: {text: panels[metric]}, rangemode: "tozero"}}};
  }

  function row(setting) {
    const at = place(setting);
    const cells = ["correctness", "coverage", "covered", "kl"].map(key => plusMinus(setting[key][at], setting[`${key}_std`][at], 4));
    return [label(setting), String(setting.beta), ...cells];
  }

  function update(ids) {
    const step = sweep.steps[state.step];
    stepInput.value = state.step;
    targetInput.value = state.target;
    byId(`${name}-step-value`).textContent = step;
    byId(`${name}-target-value`).textContent = state.target.toFixed(3);
    byId(`${name}-matched-said`).textContent =
      `At step ${step}, for each method the coefficient whose mean correctness is closest to ${state.target.toFixed(3)}; ± is the standard deviation over seeds.`;
    const head = ["Method", "β", "Correctness", sweep.coverage, `${sweep.coverage} under pi+`, "Conditional KL"];
    fillTable(byId(`${name}-matched`), head, matched().map(row));
    fillTable(byId(`${name}-points`), head, trained.map(row));
    redraw(ids);
  }

  const all = ["coverage", "kl", "coverage-dynamics", "kl-dynamics"].map(part => `${name}-${part}`);
  const retarget = target => {
    state.target = Math.min(Math.max(target, Number(targetInput.min)), Number(targetInput.max));
    update(all);
  };
  for (const metric of Object.keys(panels)) {
    const id = `${name}-${metric}`;
    figures[id] = () => panel(metric);
    figures[id].moved = event => {
      const before = stretch(state.target), ends = ["shapes[0].x0", "shapes[0].x1"].map(key => event[key]).filter(x => x !== undefined);
      if (ends.length || "shapes[0].y0" in event || "shapes[0].y1" in event)
        retarget(unstretch(ends.reduce((far, x) => Math.abs(x - before) > Math.abs(far - before) ? x : far, before)));
    };
    figures[`${id}-dynamics`] = () => dynamics(metric);
  }
  stepInput.addEventListener("input", () => { state.step = Number(stepInput.value); update(all); });
  targetInput.addEventListener("input", () => retarget(Number(targetInput.value)));
  zoomInput.addEventListener("input", () => update(all));
  byId(`${name}-reset`).addEventListener("click", () => { state.step = sweep.steps.length - 1; retarget(sweep.target); });
  update([]);
}

function translucent(color) {
  const shade = (dark() && DATA.dark[color]) || color;
  return `rgba(${[1, 3, 5].map(i => parseInt(shade.slice(i, i + 2), 16)).join(",")},0.15)`;
}

// ---- population optima -------------------------------------------------------------------------------------------------

function optima({q, beta, curves, networks, networks_q, looks}) {
  const qInput = byId("optima-q"), betaInput = byId("optima-beta");

  figures["optima-curves"] = () => {
    const here = Number(qInput.value), chosen = beta[Number(betaInput.value)];
    // Others' curves coincide with CoKL's, which lies below them and is wider than they are.
    const lowest = Object.entries(curves).sort(([one], [other]) => (other === "cokl") - (one === "cokl"));
    const traces = lowest.map(([method, grid]) => ({
      type: "scatter", mode: "lines", meta: {method}, x: beta, y: grid[here],
      line: method === "cokl" ? {...looks.cokl.line, width: 7} : looks[method].line,
      hovertemplate: `<b>${looks[method].label}</b><br>β = %{x:.3g}, q = ${q[here]}<br>Z* = %{y:.5f}<extra></extra>`,
    }));
    if (here === networks_q) for (const [method, points] of Object.entries(networks)) if (curves[method]) traces.push({
      type: "scatter", mode: "markers", meta: {method}, x: points.beta, y: points.correctness, marker: looks[method].marker,
      hovertemplate: `<b>${looks[method].label}</b>, networks<br>β = %{x:g}<br>correctness %{y:.4f}<extra></extra>`,
    });
    const across = {type: "line", xref: "paper", x0: 0, x1: 1, y0: q[here], y1: q[here], line: {color: ink("soft"), width: 1, dash: "dot"}};
    const down = {type: "line", yref: "paper", x0: chosen, x1: chosen, y0: 0, y1: 1, line: {color: ink("link"), width: 2, dash: "dash"}};
    return {data: traces, layout: {
      xaxis: {title: {text: "Coefficient β"}, type: "log", range: [Math.log10(beta[0]), Math.log10(beta.at(-1))], dtick: 1},
      yaxis: {title: {text: "Z*"}, range: [-0.03, 1.03]}, shapes: [across, down],
      annotations: [{xref: "paper", x: 1, xanchor: "right", y: q[here], yanchor: "bottom", text: "q", showarrow: false}],
    }};
  };

  function update() {
    const here = Number(qInput.value), at = Number(betaInput.value);
    byId("optima-q-value").textContent = q[here];
    byId("optima-beta-value").textContent = beta[at].toPrecision(3);
    fillTable(byId("optima-table"), ["Method", "Z*", "1 − Z*", "Z* − q"], Object.entries(curves).map(([method, grid]) => {
      const mass = grid[here][at];
      return [looks[method].label, ...[mass, 1 - mass, mass - q[here]].map(value => shown(value, 4))];
    }));
    redraw(["optima-curves"]);
  }
  for (const input of [qInput, betaInput]) input.addEventListener("input", update);
  update();
}

// ---- the logbook -------------------------------------------------------------------------------------------------------

function logbook() {
  const search = byId("claims-search"), area = byId("claims-area"), verdict = byId("claims-verdict");
  const list = byId("claims-list");
  const entries = [...document.querySelectorAll(".claim")].map(element => ({element, words: element.textContent.toLowerCase(),
    title: element.querySelector("summary").textContent.toLowerCase()}));
  function filter() {
    const whole = search.value.toLowerCase().trim(), words = whole.split(/\s+/).filter(Boolean);
    // The phrase as it stands comes first, in a title before it is in the evidence; else the order of the page.
    const rank = entry => !whole ? 0 : entry.title.includes(whole) ? 0 : entry.words.includes(whole) ? 1 : 2;
    list.append(...[...entries].sort((one, other) => rank(one) - rank(other)).map(entry => entry.element));
    for (const {element, words: has} of entries) {
      const {area: about, verdict: judged} = element.dataset;
      element.hidden = (area.value && about !== area.value) || (verdict.value && judged !== verdict.value) || !words.every(word => has.includes(word));
    }
    byId("claims-count").textContent = `${entries.filter(entry => !entry.element.hidden).length} of ${entries.length} claims`;
  }
  for (const input of [search, area, verdict]) input.addEventListener("input", filter);
  filter();
}

// ---- what leaves the page: tables, pictures, and the view itself -----------------------------------------------------

function save(name, type, text) {
  const link = Object.assign(document.createElement("a"), {download: name, href: URL.createObjectURL(new Blob([text], {type}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function exports() {
  const button = (text, label, action) => {
    const made = Object.assign(document.createElement("button"), {type: "button", className: "export", textContent: text});
    made.setAttribute("aria-label", label);
    made.addEventListener("click", action);
    return made;
  };
  const quoted = cell => /[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;
  document.querySelectorAll(".scroll > table").forEach((table, number) => {
    const name = table.id || `${table.closest("section").id}-${number + 1}`;
    const rows = () => [...table.rows].map(row => [...row.cells].map(cell => quoted(cell.textContent)).join(",")).join("\n");
    table.parentElement.after(button("CSV", `Save the table ${name} as CSV`, () => save(`${name}.csv`, "text/csv", `${rows()}\n`)));
  });
  for (const plot of document.querySelectorAll(".plot")) plot.after(button("SVG", `Save the plot ${plot.id} as SVG`, async () => {
    if (!drawn.has(plot.id)) draw(plot.id);
    const address = await Plotly.toImage(plot, {format: "svg"});
    save(`${plot.id}.svg`, "image/svg+xml", decodeURIComponent(address.slice(address.indexOf(",") + 1)));
  }));
}

// After the anchor, "#claims?claims-verdict=held": every control that is not as the page opened, and what is isolated.
function view() {
  const controls = [...document.querySelectorAll("input[id], select[id]")];
  const opened = new Map(controls.map(control => [control.id, control.value]));
  const anchor = () => location.hash.slice(1).split("?")[0];
  function write(target) {
    const state = new URLSearchParams();
    for (const control of controls) if (control.value !== opened.get(control.id)) state.set(control.id, control.value);
    for (const chip of document.querySelectorAll('.chip[aria-pressed="true"]')) state.append("only", `${chip.closest("section").id}:${chip.dataset.method}`);
    const place = String(state) && target.closest?.("section")?.id || anchor();
    history.replaceState(null, "", `#${place}${String(state) && `?${state}`}`);
  }
  function read(hash) {
    const [place, query] = hash.slice(1).split("?"), state = new URLSearchParams(query || "");
    for (const [id, value] of state) {
      const control = controls.find(one => one.id === id);
      if (control) { control.value = value; control.dispatchEvent(new Event("input", {bubbles: true})); }
    }
    for (const only of state.getAll("only")) {
      const [kind, method] = only.split(":");
      document.querySelector(`#${CSS.escape(kind)} .chip[data-method="${CSS.escape(method)}"][aria-pressed="false"]`)?.click();
    }
    if (query) byId(place)?.scrollIntoView();
  }
  read(location.hash);
  for (const event of ["input", "click"]) document.addEventListener(event, ({target}) => setTimeout(() => write(target)));
  addEventListener("hashchange", event => read(new URL(event.newURL).hash));
}

// ---- the page ------------------------------------------------------------------------------------------------------------

function themes() {
  const button = byId("theme"), system = matchMedia("(prefers-color-scheme: dark)");
  const names = {auto: "as the system's", light: "light", dark: "dark"};
  let chosen = "auto";
  try { chosen = localStorage.getItem("theme") in names ? localStorage.getItem("theme") : "auto"; } catch { /* a file may have no storage */ }
  function apply() {
    document.documentElement.dataset.theme = chosen === "auto" ? (system.matches ? "dark" : "light") : chosen;
    button.textContent = `Theme: ${names[chosen]}`;
    redraw(drawn);
  }
  button.addEventListener("click", () => {
    const order = Object.keys(names);
    chosen = order[(order.indexOf(chosen) + 1) % order.length];
    try { localStorage.setItem("theme", chosen); } catch { /* as above */ }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

themes();
for (const [name, sweep] of Object.entries(DATA.sweeps)) tradeoff(name, sweep);
optima(DATA.optima);
logbook();
exports();
for (const chip of document.querySelectorAll(".chip")) chip.addEventListener("click", () => isolate(chip.closest(".member"), chip.dataset.method));
for (const select of document.querySelectorAll("[data-choose]")) select.addEventListener("input", () => {
  document.querySelectorAll(`[data-member="${select.dataset.choose}"]`).forEach((member, place) => { member.hidden = place !== Number(select.value); });
});
const watch = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting && !drawn.has(entry.target.id)) draw(entry.target.id);
}, {rootMargin: "300px"});
const plots = [...document.querySelectorAll(".plot")];
draw(plots[0].id);  // at once, wherever it stands
plots.forEach(plot => watch.observe(plot));
view();
