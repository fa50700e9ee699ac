// Who worked when. A part of it can be looked at more closely: drag over it, or use the keys.

import { get } from "./api.js";
import { legend } from "./charts.js";
import { h, replace, s } from "./dom.js";
import { number, percent, seconds, ticks } from "./format.js";
import { note } from "./route.js";

const TONES = { sample: "t0", grade: "t1", environment: "t3", prompt: "t5", learner: "t2", reporting: "tdim" };
const NAMES = { sample: "sampling", grade: "grading", environment: "environment", prompt: "prompts", learner: "learner", reporting: "records" };
const LEFT = 92;
const ROW = 9;

export function timeline(run, query, bigBytes) {
  const element = h("div", { class: "timeline" }, h("p", { class: "dim" }, "reading the journal…"));
  let [since, until] = (query.time ?? "").split("-").map(Number);
  let range = Number.isFinite(since) && Number.isFinite(until) ? [since, until] : null;
  let data = null;
  let timer = null;
  let wanted = !bigBytes;
  const load = async () => {
    clearTimeout(timer);
    if (!wanted) return;
    try {
      data = await get(`runs/${run}/timeline`, range ? { since: range[0], until: range[1] } : {});
    } catch (error) {
      replace(element, h("p", { class: "error" }, error.message));
      return;
    }
    if (data.missing) replace(element, h("p", { class: "dim" }, data.missing));
    else if (data.reading !== undefined) {
      replace(element, h("p", { class: "dim" }, `reading the journal: ${number(data.reading)} records so far`));
      timer = setTimeout(load, 700);
    } else draw();
  };
  const see = (a, b) => {
    range = a <= 0 && b >= data.end ? null : [Math.max(0, a), Math.min(data.end, b)];
    note({ time: range ? range.map((t) => Number(t.toPrecision(6))).join("-") : "" });
    load();
  };
  const zoom = (factor, shift = 0) => {
    if (!data?.lanes) return;
    const [mid, half] = [(data.since + data.until) / 2, ((data.until - data.since) / 2) * factor];
    const by = shift * (data.until - data.since);
    see(mid - half + by, mid + half + by);
  };
  const draw = () => {
    const button = (text, label, action) => h("button", { type: "button", "aria-label": label, onclick: action }, text);
    const tools = h("div", { class: "tools" }, button("+", "Closer", () => zoom(0.5)), button("−", "Further away", () => zoom(2)), button("←", "Earlier", () => zoom(1, -0.5)), button("→", "Later", () => zoom(1, 0.5)), button("whole", "The whole run", () => see(0, data.end)), h("span", { class: "dim" }, `${seconds(data.since)} to ${seconds(data.until)}`));
    const box = h("div", { class: "chart scroll", tabindex: "0", role: "region", "aria-label": "Timeline" });
    const out = h("p", { class: "readout" }, words());
    const left = data.is_whole ? (data.num_lanes_left_out ? `${data.num_lanes_left_out} more lanes are not drawn.` : "") : `${number(data.num_here)} pieces of work here: look more closely to see each of them.`;
    replace(element, tools, legend(Object.entries(NAMES).map(([kind, name]) => [name, TONES[kind]])), box, out, left ? h("p", { class: "dim small" }, left) : null, data.note ? h("p", { class: "notice" }, data.note) : null);
    box.append(picture(box.clientWidth || 700, data, see, (text) => (out.textContent = text || words())));
  };
  const words = () => `Learner idle ${percent(data.idle.learner)}, engine idle ${percent(data.idle.engine)}, neither at work ${percent(data.idle.both)}, both ${percent(data.idle.overlap)}.`;
  if (bigBytes) {
    replace(element, h("button", { type: "button", onclick: () => ((wanted = true), load()) }, `Read the journal (${number(Math.round(bigBytes / 1e6))} MB)`));
  } else load();
  return {
    element,
    refresh: load,
    close: () => clearTimeout(timer),
    keys: { "+": ["timeline: closer", () => zoom(0.5)], "-": ["timeline: further away", () => zoom(2)], ArrowLeft: ["timeline: earlier", () => zoom(1, -0.5)], ArrowRight: ["timeline: later", () => zoom(1, 0.5)] },
  };
}

function picture(width, data, see, tell) {
  const wide = Math.max(width, 340);
  const X = (t) => LEFT + ((t - data.since) / (data.until - data.since || 1)) * (wide - LEFT - 8);
  const svg = s("svg", { width: wide, role: "img", "aria-label": `Timeline from ${seconds(data.since)} to ${seconds(data.until)}: ${data.lanes.length} lanes` });
  let y = 18;
  for (const at of ticks(data.since, data.until, Math.max(3, wide / 110))) svg.append(s("text", { class: "axis", x: X(at), y: 11, "text-anchor": "middle" }, `${number(at)} s`));
  for (const [step, began] of data.steps.length <= 60 ? data.steps : []) svg.append(s("line", { class: "grid", x1: X(began), x2: X(began), y1: 16, y2: 9999 }, s("title", {}, `step ${step}`)));
  for (const [name, values, tone] of [["tokens per second", data.tokens_per_second, "t0"], ...["sample", "grade", "environment"].map((kind) => [`${NAMES[kind]} in flight`, data.curves[kind], TONES[kind]])]) {
    if (values.some((v) => v > 0)) {
      curve(svg, X, y, data.times, values, name, tone);
      y += 40;
    }
  }
  const seen = {};
  for (const lane of data.lanes) {
    if (!lane.spans.length) continue;
    const name = lane.kind === "learner" || lane.kind === "reporting" ? NAMES[lane.kind] : seen[lane.kind] ? "" : NAMES[lane.kind];
    if (name) y += seen[lane.kind] === undefined ? 4 : 0;
    seen[lane.kind] = true;
    if (name) svg.append(s("text", { class: "axis", x: LEFT - 6, y: y + ROW, "text-anchor": "end" }, name));
    for (const [began, ended, label, outcome] of lane.spans) {
      const from = Math.max(LEFT, X(began));
      const rect = s("rect", { class: `bar ${TONES[lane.kind]}${outcome === "failed" || outcome === "lost" ? " bad" : ""}`, x: from, y, width: Math.max(0.8, Math.min(wide - 8, X(ended)) - from), height: ROW });
      rect.addEventListener("pointerenter", () => tell(`${label}: ${seconds(began)} to ${seconds(ended)}${outcome ? `, ${outcome}` : ""}`));
      svg.append(rect);
    }
    y += ROW + 2;
  }
  for (const at of data.restarts) svg.append(s("line", { class: "restart", x1: X(at), x2: X(at), y1: 14, y2: y }, s("title", {}, "taken up again")));
  svg.setAttribute("height", y + 6);
  svg.addEventListener("pointerleave", () => tell(""));
  brush(svg, wide, y, (x) => data.since + ((x - LEFT) / (wide - LEFT - 8)) * (data.until - data.since), see);
  return svg;
}

function curve(svg, X, y, times, values, name, tone) {
  const most = Math.max(...values) || 1;
  const line = values.map((v, k) => `${X(times[k])},${y + 32 - (30 * v) / most}`).join(" ");
  svg.append(s("polygon", { class: `band ${tone}`, points: `${X(times[0])},${y + 32} ${line} ${X(times.at(-1))},${y + 32}` }), s("polyline", { class: `line ${tone}`, points: line }));
  svg.append(s("text", { class: "axis", x: LEFT - 6, y: y + 14, "text-anchor": "end" }, name.replace(" in flight", "").replace("tokens per second", "tokens/s")), s("text", { class: "axis", x: LEFT - 6, y: y + 28, "text-anchor": "end" }, `≤ ${number(Math.round(most * 10) / 10)}`));
}

function brush(svg, wide, height, time, see) {
  const mark = s("rect", { class: "brush", y: 14, height, x: 0, width: 0 });
  svg.append(mark);
  let from = null;
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch") from = event.offsetX; // a finger scrolls
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    mark.setAttribute("x", Math.min(from, event.offsetX));
    mark.setAttribute("width", Math.abs(event.offsetX - from));
  });
  svg.addEventListener("pointerup", (event) => {
    if (from !== null && Math.abs(event.offsetX - from) > 5) see(time(Math.min(from, event.offsetX)), time(Math.max(from, event.offsetX)));
    from = null;
  });
}
