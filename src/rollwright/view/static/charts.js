// Small charts as SVG, drawn for the width that there is.

import { h, s } from "./dom.js";
import { number, short, ticks } from "./format.js";

const LEFT = 46;
const BOTTOM = 22;
const TOP = 8;

// A figure that draws itself again whenever its width changes.
function figure(label, draw) {
  const box = h("div", { class: "chart" });
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.round(box.clientWidth);
    if (now && now !== width) {
      width = now;
      box.replaceChildren(...draw(width));
    }
  }).observe(box);
  return h("figure", { "aria-label": label, role: "group" }, box);
}

function frame(width, height, label, scaleY, rangeY, marksX) {
  const bottom = height - BOTTOM;
  return s(
    "svg",
    { width, height, role: "img", "aria-label": label },
    rangeY.map((at) => [
      s("line", { class: "grid", x1: LEFT, x2: width - 4, y1: scaleY(at), y2: scaleY(at) }),
      s("text", { class: "axis", x: LEFT - 6, y: scaleY(at) + 4, "text-anchor": "end" }, short(at)),
    ]),
    marksX.map(([x, text]) => s("text", { class: "axis", x, y: bottom + 16, "text-anchor": "middle" }, text)),
  );
}

// lines: [{name, points: [[x, y, low?, high?]], tone}], tone being a class of style.css.
export function lineChart(title, lines, { height = 190, xName = "step", from = undefined, to = undefined } = {}) {
  const filled = lines.filter((line) => line.points.length);
  if (!filled.length) return h("p", { class: "dim" }, "nothing measured yet");
  const all = filled.flatMap((line) => line.points);
  const xs = all.map((p) => p[0]);
  const ys = all.flatMap((p) => p.slice(1)).filter((y) => typeof y === "number");
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  let [y0, y1] = [from ?? Math.min(...ys), to ?? Math.max(...ys)];
  if (y0 === y1) [y0, y1] = [y0 - (Math.abs(y0) || 1) * 0.1, y1 + (Math.abs(y1) || 1) * 0.1];
  const last = filled.map((line) => `${line.name} ${number(line.points.at(-1)[1])}`).join(", ");
  const label = `${title}: ${number(all.length)} points, at the end ${last}`;
  const read = h("p", { class: "readout", "aria-hidden": "true" }, " ");
  const draw = (width) => {
    const X = (x) => LEFT + ((x - x0) / (x1 - x0 || 1)) * (width - LEFT - 10);
    const Y = (y) => TOP + (1 - (y - y0) / (y1 - y0)) * (height - TOP - BOTTOM);
    const svg = frame(width, height, label, Y, ticks(y0, y1, 4), ticks(x0, x1, Math.max(2, width / 90)).filter(Number.isInteger).map((x) => [X(x), short(x)]));
    for (const line of filled) {
      const band = line.points.filter((p) => p.length >= 4);
      if (band.length > 1) {
        const edge = [...band.map((p) => [X(p[0]), Y(p[3])]), ...band.reverse().map((p) => [X(p[0]), Y(p[2])])];
        svg.append(s("polygon", { class: `band ${line.tone}`, points: edge.map((p) => p.join()).join(" ") }));
      }
      const path = line.points.map((p) => `${X(p[0])},${Y(p[1])}`).join(" ");
      svg.append(s("polyline", { class: `line ${line.tone}`, points: path }));
      if (line.points.length < 40) svg.append(...line.points.map((p) => s("circle", { class: `dot ${line.tone}`, cx: X(p[0]), cy: Y(p[1]), r: 2.4 })));
    }
    const cross = s("line", { class: "cross", y1: TOP, y2: height - BOTTOM, x1: -9, x2: -9 });
    svg.append(cross);
    svg.addEventListener("pointermove", (event) => {
      const x = x0 + ((event.offsetX - LEFT) / (width - LEFT - 10)) * (x1 - x0);
      const near = filled.map((line) => [line, line.points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a))]);
      cross.setAttribute("x1", X(near[0][1][0]));
      cross.setAttribute("x2", X(near[0][1][0]));
      read.textContent = `${xName} ${number(near[0][1][0])}: ${near.map(([line, p]) => `${line.name} ${number(p[1])}`).join(", ")}`;
    });
    return [svg];
  };
  const key = filled.length > 1 ? legend(filled.map((line) => [line.name, line.tone])) : null;
  return h("div", {}, key, figure(label, draw), read);
}

// bins: [[from, ...counts]], stacked; tones and names: one per count.
export function histogram(title, bins, width, names, tones, { height = 170 } = {}) {
  if (!bins.length) return h("p", { class: "dim" }, "no rollouts yet");
  const most = Math.max(...bins.map((bin) => bin.slice(1).reduce((a, b) => a + b, 0)));
  const [x0, x1] = [bins[0][0], bins.at(-1)[0] + width];
  const peak = bins.reduce((a, b) => (b.slice(1).reduce((x, y) => x + y) > a.slice(1).reduce((x, y) => x + y) ? b : a));
  const label = `${title}: from ${x0} to ${x1}, most at ${peak[0]}`;
  const draw = (wide) => {
    const span = Math.min(wide - LEFT - 10, 90 * bins.length);
    const X = (x) => LEFT + ((x - x0) / (x1 - x0)) * span;
    const Y = (y) => TOP + (1 - y / most) * (height - TOP - BOTTOM);
    const single = width === 1 && x1 - x0 <= 16; // whole numbers: each stands below the middle of its bar
    const marks = single ? bins.map((bin) => [X(bin[0] + 0.5), short(bin[0])]) : ticks(x0, x1, Math.max(2, wide / 90)).map((x) => [X(x), short(x)]);
    const svg = frame(wide, height, label, Y, ticks(0, most, 3), marks);
    for (const [from, ...counts] of bins) {
      let below = 0;
      counts.forEach((count, k) => {
        if (!count) return;
        const hint = `${from}${width > 1 ? ` to ${from + width - 1}` : ""}: ${number(count)} ${names[k]}`;
        svg.append(s("rect", { class: `bar ${tones[k]}`, x: X(from), width: Math.max(1, Math.min(90, X(from + width) - X(from) - 1)), y: Y(below + count), height: Y(below) - Y(below + count) }, s("title", {}, hint)));
        below += count;
      });
    }
    return [svg];
  };
  return h("div", {}, names.length > 1 ? legend(names.map((name, k) => [name, tones[k]])) : null, figure(label, draw));
}

export function legend(entries) {
  return h("p", { class: "legend" }, entries.map(([name, tone]) => h("span", {}, h("i", { class: `swatch ${tone}` }), name)));
}

// Counts as rows of bars: [[name, count, tone?]].
export function bars(rows) {
  const most = Math.max(1, ...rows.map((row) => row[1]));
  const total = rows.reduce((sum, row) => sum + row[1], 0) || 1;
  return h(
    "table",
    { class: "bars" },
    h("tbody", {}, rows.map(([name, count, tone = "t0"]) =>
      h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "meter" }, h("i", { class: `swatch ${tone}`, style: { width: `${(100 * count) / most}%` } })), h("td", { class: "num" }, number(count)), h("td", { class: "num dim" }, `${((100 * count) / total).toFixed(1)}%`)),
    )),
  );
}
