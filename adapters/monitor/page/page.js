"use strict";
// Text of the query only ever becomes text nodes and attributes of SVG, never markup.
const UNKNOWN = "-", SVG = "http://www.w3.org/2000/svg", OTHER = "other";
const WORK = ["open", "process", "flush", "commit", OTHER];
const PLOT = { width: 560, height: 210, left: 76, bottom: 22, top: 8 };
const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function number(amount) {
  if (amount === null) return UNKNOWN;
  const digits = Number.isInteger(amount) || amount >= 10 ? 0 : 1;
  return amount.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  let amount = bytes, unit = "";
  for (unit of ["kB", "MB", "GB", "TB"]) {
    amount /= 1000;
    if (amount < 999.95) break;
  }
  return `${amount.toFixed(1)} ${unit}`;
}

function duration(millis) {
  if (millis === null || millis === undefined) return UNKNOWN;
  if (millis < 0) return `-${duration(-millis)}`;
  if (millis < 1000) return `${millis.toFixed(millis < 10 && !Number.isInteger(millis) ? 1 : 0)} ms`;
  if (millis < 60000) return `${(millis / 1000).toFixed(1)} s`;
  const seconds = Math.floor(millis / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${number(Math.floor(seconds / 86400))} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// What stands at an axis: a round length of time, without the part that is zero.
const tick = (said) => said.replace(/ 0 (s|min|h)$/, "");

function show(id, shown, content) {
  byId(id).hidden = !shown;
  if (shown) byId(id).querySelector("div").replaceChildren(...content());
}

// Columns are [heading, text of a row, class]; a bar's text is a share from 0 to 1.
function table(columns, rows) {
  const head = element("tr", {}, ...columns.map(([name, , kind]) => element("th", { class: kind }, name)));
  const body = rows.map((row) => element("tr", {}, ...columns.map(([, text, kind]) => {
    const cell = element("td", { class: kind });
    if (kind === "bar") {
      const bar = element("i");
      bar.style.width = `${100 * text(row)}%`;
      cell.append(bar);
    } else cell.append(text(row));
    return cell;
  })));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

function nice(most) {
  const power = 10 ** Math.floor(Math.log10(most || 1));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= most);
}

// Lengths of time whose halves and quarters are read at a glance.
const NICE = [[1000, [1, 2, 4, 8, 20, 40, 60]], [60000, [2, 4, 8, 20, 40, 60]], [3600000, [2, 4, 8, 12, 24]]];

function niceTime(most) {
  if (most <= 800) return nice(most);
  for (const [unit, steps] of NICE) {
    const found = steps.find((step) => step * unit >= most);
    if (found) return found * unit;
  }
  return nice(most / 86400000) * 86400000;
}

// Stacked bars, one for each micro-batch; `parts` gives what each one is made of.
function plot(batches, parts, names) {
  const { width, height, left, bottom, top } = PLOT;
  const sums = batches.map((one) => names.reduce((sum, name) => sum + (parts(one)[name] || 0), 0));
  const most = niceTime(Math.max(...sums)), tall = height - bottom - top, wide = (width - left) / batches.length;
  const chart = drawn("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img" });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const y = top + tall * (1 - share);
    chart.append(
      drawn("line", { class: "grid", x1: left, x2: width, y1: y, y2: y }),
      drawn("text", { class: "tick", x: left - 6, y: y + 4, "text-anchor": "end" }, tick(duration(most * share))),
    );
  }
  batches.forEach((one, place) => {
    const bar = drawn("g"), said = [`micro-batch ${one.number}: ${duration(sums[place])}`];
    let y = top + tall;
    names.forEach((name, series) => {
      const took = parts(one)[name] || 0, high = (took / most) * tall;
      if (!took) return;
      y -= high;
      said.push(`${name} ${duration(took)}`);
      const x = left + place * wide + Math.min(1, wide / 8);
      bar.append(drawn("rect", { class: `s${series % 8}`, x, y, width: Math.min(40, wide * 0.85), height: high }));
    });
    bar.append(drawn("title", {}, said.join("\n")));
    chart.append(bar);
  });
  const every = Math.ceil(batches.length / 8);
  batches.forEach((one, place) => {
    if (place % every) return;
    const x = left + place * wide + Math.min(40, wide * 0.85) / 2;
    chart.append(drawn("text", { class: "tick", x, y: height - 6, "text-anchor": "middle" }, String(one.number)));
  });
  const legend = names.map((name, series) => element("span", {}, element("i", { class: `s${series % 8}` }), name));
  return [chart, element("div", { class: "legend" }, ...legend)];
}

const LEVELS = { minutes: 60000, hours: 3600000, days: 86400000 };
const LINES = { width: 520, height: 160, left: 76, bottom: 20, top: 8 };
let level = "minutes";

function clock(time, every) {
  const at = new Date(time), two = (part) => String(part).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return every >= LEVELS.days ? day : `${every >= LEVELS.hours ? `${day.slice(5)} ` : ""}${two(at.getHours())}:${two(at.getMinutes())}`;
}

// Lines over the time of points, broken where there is none or a figure is unknown. `lines` are [name, figure].
function chart(title, points, every, lines, text) {
  const known = points.filter((one) => lines.some(([, figure]) => figure(one) !== null));
  if (!known.length) return null;
  const { width, height, left, bottom, top } = LINES, first = points[0].at, last = points.at(-1).at;
  const amounts = known.flatMap((one) => lines.map(([, figure]) => figure(one)).filter((amount) => amount !== null));
  const least = Math.min(0, ...amounts), up = text === duration ? niceTime : nice;
  const most = least + (up(Math.max(...amounts) - least) || 1);
  const tall = height - bottom - top, x = (at) => left + ((width - left - 6) * (at - first)) / Math.max(1, last - first);
  const y = (amount) => top + tall * (1 - (amount - least) / (most - least));
  const drawing = drawn("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const share of [0, 0.5, 1]) {
    const amount = least + (most - least) * share;
    drawing.append(
      drawn("line", { class: "grid", x1: left, x2: width, y1: y(amount), y2: y(amount) }),
      drawn("text", { class: "tick", x: left - 6, y: y(amount) + 4, "text-anchor": "end" }, tick(text(amount))),
    );
  }
  lines.forEach(([, figure], series) => {
    let path = "", before = null;
    for (const one of points) {
      const amount = figure(one);
      if (amount === null) { before = null; continue; }
      path += `${before !== null && one.at - before <= 2 * every ? "L" : "M"}${x(one.at).toFixed(1)} ${y(amount).toFixed(1)}`;
      if (before === null || one.at - before > 2 * every) path += "h0.01";
      before = one.at;
    }
    drawing.append(drawn("path", { class: `line s${series}`, d: path }));
  });
  for (const one of known) {
    const said = [clock(one.at, every), ...lines.map(([name, figure]) => `${name} ${figure(one) === null ? UNKNOWN : text(figure(one))}`)];
    const wide = Math.max(3, ((width - left) * every) / Math.max(every, last - first));
    drawing.append(drawn("rect", { x: x(one.at) - wide / 2, y: top, width: wide, height: tall, "fill-opacity": 0 },
      drawn("title", {}, said.join("\n"))));
  }
  drawing.append(
    drawn("text", { class: "tick", x: left, y: height - 5 }, clock(first, every)),
    drawn("text", { class: "tick", x: width - 2, y: height - 5, "text-anchor": "end" }, clock(last, every)),
  );
  const now = lines.map(([, figure]) => figure(known.at(-1)))[0];
  const head = element("h3", {}, `${title} `, element("b", {}, now === null ? UNKNOWN : text(now)));
  const legend = lines.length < 2 ? [] : [element("div", { class: "legend" }, ...lines.map(([name], series) =>
    element("span", {}, element("i", { class: `s${series}` }), name)))];
  return element("div", {}, head, drawing, ...legend);
}

function series(seen) {
  const points = seen.series[level], every = LEVELS[level];
  if (!points.length) return [element("p", {}, "nothing is kept of that time")];
  const mean = (name) => (one) => one[name] / Math.max(1, one.batches);
  return [
    chart("lag", points, every, [["lag", (one) => one.lag]], duration),
    chart("records behind", points, every, [["behind", (one) => one.behind]], number),
    chart("rows a second", points, every, [["rows/s", (one) => (one.rows * 1000) / every]], number),
    chart("a micro-batch took", points, every, [["the longest", (one) => one.longest], ["on average", mean("took")]], duration),
    chart("work in a micro-batch", points, every, ["open", "process", "flush", "commit"].map((name) => [name, mean(name)]), duration),
    chart("state", points, every, [["state", (one) => one.state]], (amount) => size(Math.round(amount))),
    chart("stream time behind its latest", points, every, [["behind", behindLatest(points)]], duration),
    chart("late and dropped", points, every, [["late", (one) => one.late], ["dropped", (one) => one.dropped]], number),
    chart("records that wait", points, every, [["waiting", (one) => one.waiting]], number),
    chart("free disk", points, every, [["free", (one) => one.free]], (amount) => size(Math.round(amount))),
  ].filter((one) => one !== null);
}

// Stream time itself is a line that hardly bends; how far it is behind the latest one shows where it stood still.
function behindLatest(points) {
  const latest = Math.max(...points.map((one) => one.stream_time ?? -Infinity));
  return (one) => (one.stream_time === null ? null : latest - one.stream_time);
}

function findings(seen) {
  return seen.findings.map((one) => element("li", {},
    element("b", {}, one.state), one.since === null ? "" : `, since ${duration(seen.at - one.since)}`, `: ${one.figures}`,
    element("small", {}, `${one.advice} (${one.page})`)));
}

function topology(drawing) {
  const edge = 10, roles = Object.fromEntries(drawing.boxes.map((box) => [box.id, box.role]));
  const wide = drawing.width + 2 * edge, high = drawing.height + 2 * edge;
  const marker = { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" };
  const picture = drawn("svg", { width: wide, height: high, viewBox: `${-edge} ${-edge} ${wide} ${high}`, role: "img" },
    drawn("defs", {}, drawn("marker", marker, drawn("path", { d: "M0 0L8 4L0 8z" }))));
  for (const arrow of drawing.arrows) {
    const kept = roles[arrow.stop] === "store";
    const path = arrow.points.map(([x, y], place) => {
      if (!place) return `M${x} ${y}`;
      const [px, py] = arrow.points[place - 1], middle = (y + py) / 2;
      return x === px ? `L${x} ${y}` : `C${px} ${middle} ${x} ${middle} ${x} ${y}`;
    });
    const look = kept ? { class: "arrow kept" } : { class: "arrow", "marker-end": "url(#head)" };
    picture.append(drawn("path", { ...look, d: path.join("") }));
  }
  for (const box of drawing.boxes) {
    const { x, y, width, height } = box, round = box.role === "processor" ? 4 : 12;
    const lines = box.lines.map((line, place) => drawn(
      "text", { x: x + width / 2, y: y + 20 + 16 * place, ...(place && { class: "more" }) }, line));
    const frame = drawn("rect", { x, y, width, height, rx: round });
    picture.append(drawn("g", { class: `box ${box.role}` }, drawn("title", {}, box.title), frame, ...lines));
  }
  return [picture];
}

function cards(seen) {
  const last = seen.batches.at(-1), lags = seen.operators.map((one) => one.lag).filter((lag) => lag !== null);
  const waiting = seen.reasons.filter((one) => one.reason === "waiting").reduce((sum, one) => sum + one.records, 0);
  const told = seen.operators.length > 0;
  const facts = [
    ["last micro-batch", seen.batch === null ? UNKNOWN : String(seen.batch)],
    ["it took", duration(last?.took)],
    ["rows a second", number(last?.per_second ?? null)],
    ["lag, at the most", lags.length ? duration(Math.max(...lags)) : UNKNOWN],
    ["records that wait", told ? number(waiting) : UNKNOWN],
    ["state", seen.tasks.length ? size(seen.tasks.reduce((sum, one) => sum + one.size, 0)) : UNKNOWN],
  ];
  return facts.map(([what, fact]) => element("div", { class: "card" }, element("b", {}, fact), element("span", {}, what)));
}

function stateOf(seen) {
  const ago = (time) => duration(seen.at - time);
  const parts = [seen.batch === null ? "No micro-batch has been committed yet"
    : `Micro-batch ${seen.batch} committed ${ago(seen.committed)} ago`];
  if (seen.open_batch !== null) parts.push(`micro-batch ${seen.open_batch} begun ${ago(seen.open_since)} ago, not committed`);
  if (seen.run !== null && seen.run.ended !== null)
    parts.push(`ended ${ago(seen.run.ended)} ago${seen.run.error === null ? "" : ` by ${seen.run.error}`}${seen.run.code === null ? "" : ` [${seen.run.code}]`}`);
  if (seen.restarts) parts.push(`started again ${seen.restarts === 1 ? "once" : `${number(seen.restarts)} times`}`);
  return parts.join("; ");
}

function render(seen) {
  byId("name").textContent = document.title = seen.name || seen.query;
  byId("state").textContent = stateOf(seen);
  byId("place").textContent = `query ${seen.query} · ${seen.checkpoint}`;
  byId("notes").hidden = !seen.notes.length;
  byId("notes").replaceChildren(...seen.notes.map((note) => element("li", {}, note)));
  byId("findings").hidden = !seen.findings.length;
  byId("findings").replaceChildren(...findings(seen));
  const told = Object.values(seen.series).some((points) => points.length);
  show("series", told, () => series(seen));
  for (const button of document.querySelectorAll("#series button")) {
    button.setAttribute("aria-pressed", String(button.dataset.level === level));
    button.onclick = () => { level = button.dataset.level; render(seen); };
  }
  byId("cards").replaceChildren(...cards(seen));
  show("topology", seen.drawing.boxes.length, () => topology(seen.drawing));
  const stepped = seen.batches.some((one) => Object.keys(one.steps).length);
  const steps = (one) => (stepped ? one.steps : { "from its first to its last file": one.took || 0 });
  const names = [...new Set(seen.batches.flatMap((one) => Object.keys(steps(one))))].sort(
    (one, another) => (one === OTHER) - (another === OTHER) || one.localeCompare(another));
  show("steps", seen.batches.length, () => plot(seen.batches, steps, names));
  const worked = seen.batches.filter((one) => Object.keys(one.work).length);
  show("work", worked.length, () => plot(worked, (one) => one.work, WORK));
  show("sources", seen.sources.length, () => [table([
    ["source", (one) => one.name, "long"], ["rows", (one) => number(one.rows), "right"],
    ["rows/s", (one) => number(one.per_second), "right"], ["behind", (one) => number(one.behind), "right"],
  ], seen.sources)]);
  show("reasons", seen.reasons.length, () => [table([
    ["operator", (one) => one.operator, "long"], ["node", (one) => one.node || UNKNOWN, "long"],
    ["reason", (one) => one.reason, ""], ["records", (one) => number(one.records), "right"],
  ], seen.reasons)]);
  show("operators", seen.operators.length, () => [table([
    ["operator", (one) => one.operator, "long"], ["batch", (one) => String(one.batch), "right"],
    ["tasks", (one) => number(one.tasks), "right"], ["in", (one) => number(one.records_in), "right"],
    ["out", (one) => number(one.records_out), "right"], ["dropped", (one) => number(one.dropped), "right"],
    ["late", (one) => number(one.late), "right"], ["waiting", (one) => number(one.waiting), "right"],
    ["lag", (one) => duration(one.lag), "right"], ["files", (one) => number(one.files), "right"],
    ...WORK.map((name) => [name, (one) => duration(one.work[name]), "right"]),
  ], seen.operators)]);
  const busiest = Math.max(1, ...seen.work.map((one) => one.records_in));
  show("each", seen.work.length, () => [table([
    ["operator", (one) => one.operator, "long"], ["task", (one) => one.task, ""],
    ["batch", (one) => String(one.batch), "right"], ["in", (one) => number(one.records_in), "right"],
    ["out", (one) => number(one.records_out), "right"], ["late", (one) => number(one.late), "right"],
    ["dropped", (one) => number(one.dropped), "right"], ["rows", (one) => number(one.rows), "right"],
    ["bytes", (one) => size(one.size), "right"], ["state", (one) => (one.state === null ? UNKNOWN : size(one.state)), "right"],
    ["open", (one) => duration(one.open), "right"], ["process", (one) => duration(one.process), "right"],
    ["commit", (one) => duration(one.commit), "right"], ["all", (one) => duration(one.took), "right"],
    ["", (one) => one.records_in / busiest, "bar"],
  ], seen.work)]);
  show("hot", seen.hot_keys.length, () => [table([
    ["key", (one) => one.key, "long"], ["operator", (one) => one.operator, "long"], ["task", (one) => one.task, ""],
    ["records", (one) => `~${number(one.records)}`, "right"], ["share", (one) => `${Math.round(100 * one.share)} %`, "right"],
    ["", (one) => one.share, "bar"],
  ], seen.hot_keys)]);
  show("limits", seen.limits.length, () => [table([
    ["what", (one) => one.what, ""], ["task", (one) => one.of, "long"], ["used", (one) => size(one.used), "right"],
    ["of", (one) => size(one.limit), "right"], ["", (one) => Math.min(1, one.used / Math.max(1, one.limit)), "bar"],
  ], seen.limits)]);
  const largestStore = Math.max(1, ...seen.stores.map((one) => one.size));
  show("stores", seen.stores.length, () => [table([
    ["store", (one) => one.store, "long"], ["kind", (one) => one.kind, "long"],
    ["tasks", (one) => number(one.tasks), "right"], ["bytes", (one) => size(one.size), "right"],
    ["", (one) => one.size / largestStore, "bar"],
  ], seen.stores)]);
  const largestTask = Math.max(1, ...seen.tasks.map((one) => one.size));
  show("tasks", seen.tasks.length, () => [table([
    ["task", (one) => one.task, ""], ["commit", (one) => number(one.commit), "right"],
    ["files", (one) => number(one.files), "right"], ["rows", (one) => number(one.rows), "right"],
    ["bytes", (one) => size(one.size), "right"], ["", (one) => one.size / largestTask, "bar"],
  ], seen.tasks)]);
}

async function poll() {
  try {
    const answer = await fetch("/data.json");
    const seen = await answer.json();
    byId("state").classList.toggle("bad", !answer.ok);
    if (answer.ok) render(seen);
    else byId("state").textContent = seen.error;
  } catch (error) {
    byId("state").classList.add("bad");
    byId("state").textContent = `millpond ui does not answer any more (${error.message})`;
  }
  setTimeout(poll, Number(document.body.dataset.interval));
}

poll();
