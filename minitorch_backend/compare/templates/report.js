"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const BAD = new Set(["subject worse", "reference worse", "nondeterministic", "metadata differs", "subject raised", "reference raised"]);
const ROW = 26;

function make(tag, className, text) {
  const e = document.createElement(tag);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  return e;
}
function number(v) {
  if (v === null || v === undefined) return "–";
  if (typeof v === "string") return v === "inf" ? "∞" : v;
  if (v === 0) return "0";
  const a = Math.abs(v);
  return a >= 1e5 || a < 1e-3 ? v.toExponential(1) : String(+v.toPrecision(3));
}
const order = (v) => (v === null || v === undefined ? -Infinity : v === "inf" ? Infinity : v);

// A table whose rows exist only while they can be seen.
class Table {
  constructor(host, columns, rows, onPick) {
    Object.assign(this, { host, columns, all: rows, rows, onPick, sort: null, down: true, chosen: null });
    this.template = columns.map((c) => c.width || "minmax(6.8rem, 0.6fr)").join(" ");
    this.head = make("div", "row head");
    this.head.style.gridTemplateColumns = this.template;
    columns.forEach((c, i) => {
      const cell = make("div", c.numeric ? "n" : "", c.title);
      cell.dataset.column = c.key;
      cell.onclick = () => this.sortBy(i);
      this.head.append(cell);
    });
    this.body = make("div");
    this.body.style.position = "relative";
    host.append(this.head, this.body);
    host.addEventListener("scroll", () => this.draw());
    this.draw();
  }
  sortBy(i) {
    this.down = this.sort === i ? !this.down : Boolean(this.columns[i].numeric);
    this.sort = i;
    this.arrange();
  }
  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.rows = this.all.filter((r) => words.every((w) => r.search.includes(w)));
    this.host.scrollTop = 0;
    this.arrange();
  }
  arrange() {
    if (this.sort !== null) {
      const { key, numeric } = this.columns[this.sort], sign = this.down ? -1 : 1;
      this.rows = [...this.rows].sort((a, b) => {
        const x = numeric ? order(a[key]) : String(a[key]), y = numeric ? order(b[key]) : String(b[key]);
        return x < y ? -sign : x > y ? sign : 0;
      });
    }
    [...this.head.children].forEach((cell, i) => {
      cell.textContent = this.columns[i].title + (this.sort === i ? (this.down ? " ↓" : " ↑") : "");
    });
    this.draw();
  }
  draw() {
    this.body.style.height = this.rows.length * ROW + "px";
    const first = Math.max(0, Math.floor(this.host.scrollTop / ROW) - 5);
    const last = Math.min(this.rows.length, first + Math.ceil(this.host.clientHeight / ROW) + 12);
    const fragment = document.createDocumentFragment();
    for (let i = first; i < last; i++) {
      const r = this.rows[i], line = make("div", "row" + (r === this.chosen ? " chosen" : ""));
      line.style.cssText = `grid-template-columns:${this.template};position:absolute;left:0;right:0;top:${i * ROW}px`;
      for (const c of this.columns) {
        const cell = make("div", c.numeric ? "n" : "", c.numeric ? number(r[c.key]) : r[c.key]);
        if (c.key === "verdict" && BAD.has(r.verdict)) cell.classList.add("bad");
        cell.title = cell.textContent;
        line.append(cell);
      }
      line.onclick = () => { this.chosen = r; this.onPick(r); this.draw(); };
      fragment.append(line);
    }
    this.body.replaceChildren(fragment);
  }
}

function facts() {
  const run = data.run, list = {
    calls: run.calls.toLocaleString("en"), compared: run.compared.toLocaleString("en"), steps: run.steps, seconds: run.seconds,
    ended: run.ended, shadow: run.shadow ? "on" : "off", torch: run.torch, threads: run.threads,
  };
  if (run.every > 1) list["every"] = run.every;
  if (run.watched < run.steps) list["steps watched"] = run.watched;
  if (run.command) list["command"] = run.command;
  for (const [verdict, count] of Object.entries(data.verdicts)) list[verdict] = count.toLocaleString("en");
  for (const [name, value] of Object.entries(list)) {
    const pair = make("div");
    pair.append(make("dt", "", name), make("dd", "", String(value)));
    $("facts").append(pair);
  }
  for (const note of data.notes) $("notes").append(make("li", "", note));
  if (run.error) $("notes").append(make("li", "", "")).append(make("pre", "", run.error));
}

function detail(call, extra) {
  const card = make("article", "card"), title = make("h3", "", `${call.op} `);
  title.append(make("em", "", call.verdict));
  card.append(title);
  const place = [`call ${call.index}`, call.phase, `step ${call.step}`, call.module].filter(Boolean).join(" · ");
  card.append(make("div", "hint", extra ? `${place} · ${extra}` : place));
  if (call.detail) card.append(make("p", "", call.detail));
  const table = make("table", "numbers");
  const rows = [["", "ulp", "relative", "ε × largest"],
    ["subject against the arbiter", number(call.subject_ulp), number(call.subject_relative), number(call.subject_norm)],
    ["reference against the arbiter", number(call.reference_ulp), number(call.reference_relative), number(call.reference_norm)],
    ["subject against the reference (local)", number(call.distance_ulp), number(call.local), ""],
    ["subject against the shadow (inherited)", "", number(call.inherited), ""]];
  if (call.condition !== null) rows.push(["inputs moved by one ulp", "", "", number(call.condition)]);
  rows.forEach((cells, i) => {
    const line = make("tr");
    cells.forEach((c) => line.append(make(i ? "td" : "th", "", c)));
    table.append(line);
  });
  card.append(table, make("div", "hint", "inputs"), make("pre", "", call.inputs), make("div", "hint", "results"), make("pre", "", call.outputs));
  if (call.stack.length) card.append(make("div", "hint", "stack"), make("pre", "", call.stack.join("\n")));
  if (call.forward >= 0) card.append(make("div", "hint", `belongs to forward call ${call.forward}`), make("pre", "", call.forward_stack.join("\n")));
  return card;
}

function findings() {
  if (!data.findings.length) { $("findings").append(make("p", "hint", "None.")); return; }
  for (const f of data.findings) {
    const card = detail(f.first, f.count > 1 ? `${f.count} calls, the last ${f.last}` : "");
    card.classList.add("finding");
    if (f.command) card.append(make("div", "hint", "replay"), make("pre", "command", f.command));
    $("findings").append(card);
  }
}

function timeline() {
  const svg = $("timeline"), t = data.timeline, width = 1200, height = 240, left = 46, bottom = 24, NS = "http://www.w3.org/2000/svg";
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  const n = Math.max(t.local.length, 1), values = t.local.concat(t.inherited).map(order).filter((v) => v > 0 && v < Infinity);
  const low = Math.floor(Math.log10(values.length ? values.reduce((a, b) => Math.min(a, b)) : 1e-9));
  const high = Math.max(low + 1, Math.ceil(Math.log10(values.length ? values.reduce((a, b) => Math.max(a, b)) : 1)));
  const x = (i) => left + ((width - left - 8) * (i + 0.5)) / n;
  const y = (v) => 8 + (height - bottom - 8) * (1 - (Math.min(high, Math.log10(v)) - low) / (high - low));
  const add = (tag, attributes, text) => {
    const e = document.createElementNS(NS, tag);
    for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
    if (text !== undefined) e.textContent = text;
    svg.append(e);
  };
  const step = Math.max(1, Math.ceil((high - low) / 8));
  for (let p = low; p <= high; p += step) {
    add("line", { x1: left, x2: width, y1: y(10 ** p), y2: y(10 ** p) });
    add("text", { x: 4, y: y(10 ** p) + 4 }, `1e${p}`);
  }
  for (let k = 0; k <= 4; k++) add("text", { x: left + ((width - left - 60) * k) / 4, y: height - 6 }, Math.round((n * t.width * k) / 4).toLocaleString("en"));
  let path = "", pen = false, dots = "";
  t.inherited.forEach((v, i) => {
    v = order(v);
    if (v > 0) { path += `${pen ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`; pen = true; }
  });
  t.local.forEach((v, i) => {
    v = order(v);
    if (v > 0) dots += `M${x(i).toFixed(1)} ${(y(v) - 1).toFixed(1)}v2`;
  });
  add("path", { d: path, class: "inherited", "stroke-width": 1.2 });
  add("path", { d: dots, class: "local", "stroke-width": 2.4, "stroke-linecap": "round" });
  svg.onmousemove = (event) => {
    const box = svg.getBoundingClientRect(), at = ((event.clientX - box.left) / box.width) * width;
    const i = Math.round(((at - left) / (width - left - 8)) * n - 0.5), tip = $("tip");
    if (i < 0 || i >= t.local.length) { tip.style.display = "none"; return; }
    tip.style.cssText = `display:block;left:${Math.min(event.clientX - box.left + 12, box.width - 260)}px;top:8px`;
    tip.textContent = `call ${i * t.width}: ${t.ops[i] || "–"}, local ${number(t.local[i])}, inherited ${number(t.inherited[i])}`;
  };
  svg.onmouseleave = () => { $("tip").style.display = "none"; };
}

function histogram(o) {
  const host = $("histogram"), card = make("article", "card"), s = o.subject_histogram, r = o.reference_histogram;
  card.append(make("h3", "", o.op), make("div", "hint", `${o.judged} calls with an arbiter. Left bar: subject, right bar: reference. Heights are logarithmic.`));
  const bars = make("div", "bars"), labels = make("div", "labels"), top = Math.log1p(Math.max(1, ...s, ...r));
  s.forEach((count, i) => {
    const pair = make("div"), name = i === 0 ? "0" : i === 1 ? "<½" : i === s.length - 1 ? "∞" : i === 2 ? "<1" : `<2^${i - 2}`;
    for (const [value, className] of [[count, ""], [r[i], "ref"]]) {
      const bar = make("i", className);
      bar.style.height = (100 * Math.log1p(value)) / top + "%";
      pair.append(bar);
    }
    pair.title = `${name} ulp: subject ${count}, reference ${r[i]}`;
    bars.append(pair);
    labels.append(make("span", "", name));
  });
  card.append(bars, labels);
  host.replaceChildren(card);
}

facts();
findings();
timeline();
const N = (key, title) => ({ key, title, numeric: true });
const operatorRows = data.operators.map((o) => ({ ...o, search: o.op.toLowerCase(), milliseconds: (1e3 * o.seconds) / Math.max(o.compared, 1) }));
const operators = new Table($("operators"), [{ key: "op", title: "operator", width: "minmax(16rem, 3fr)" }, N("calls", "calls"), N("judged", "judged"),
  N("subject_ulp", "ulp subject"), N("reference_ulp", "ulp reference"), N("local", "local"), N("inherited", "inherited"), N("milliseconds", "ms a call")], operatorRows, histogram);
$("operator-filter").oninput = (e) => operators.filter(e.target.value);
const callRows = data.calls.map((c) => ({ ...c, search: `${c.op} ${c.module} ${c.verdict} ${c.phase}`.toLowerCase() }));
const calls = new Table($("calls"), [N("index", "call"), { key: "op", title: "operator", width: "minmax(12rem, 2fr)" }, { key: "verdict", title: "verdict", width: "7.6rem" },
  { key: "phase", title: "phase", width: "5.5rem" }, { key: "module", title: "module", width: "minmax(8rem, 1.4fr)" }, N("subject_ulp", "ulp subject"),
  N("reference_ulp", "ulp reference"), N("local", "local"), N("inherited", "inherited")], callRows, (c) => $("call-detail").replaceChildren(detail(c)));
const count = () => { $("call-count").textContent = `${calls.rows.length} of ${callRows.length} kept calls`; };
$("call-filter").oninput = (e) => { calls.filter(e.target.value); count(); };
count();
if (operatorRows.length) histogram(operatorRows[0]);
document.body.dataset.ready = "yes";
