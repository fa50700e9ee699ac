// The ledger as a flow: sampled tokens on the left, their fates, and why they were not trained.

import { h, s } from "./dom.js";
import { number, words } from "./format.js";

const ORDER = ["trained", "held", "stale", "filtered", "pruned", "failed", "evaluation"];
const GAP = 10;
const WIDE = 14;
const LEAST = 3; // pixels of a flow that is nearly nothing

export function flow({ fates, reasons }) {
  const rows = ORDER.filter((fate) => fates[fate]).map((fate) => [fate, fates[fate]]);
  const total = rows.reduce((sum, [, num]) => sum + num, 0);
  if (!total) return h("p", { class: "dim" }, "no step has been reported yet");
  const why = rows.flatMap(([fate]) =>
    Object.entries(reasons)
      .filter(([name]) => name.startsWith(`${fate}:`))
      .map(([name, num]) => [fate, name.slice(fate.length + 1), num]),
  );
  const label = `${number(total)} sampled tokens: ${rows.map(([fate, num]) => `${fate} ${share(num, total)}`).join(", ")}`;
  const box = h("div", { class: "chart" });
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== width) {
      width = box.clientWidth;
      box.replaceChildren(draw(width, rows, why, total, label));
    }
  }).observe(box);
  return h("figure", { "aria-label": label, role: "group" }, box);
}

const share = (num, total) => `${((100 * num) / total).toFixed(num / total < 0.001 ? 3 : 1)}%`;

function draw(width, rows, why, total, label) {
  const count = Math.max(rows.length, why.length);
  const height = Math.max(150, count * 40);
  const usable = height - GAP * count - 16;
  const tall = (num) => Math.max(LEAST, (num / total) * usable);
  const hasWhy = why.length > 0;
  const xs = [0, width * (hasWhy ? 0.3 : 0.52), width * 0.68];
  const svg = s("svg", { width, height, role: "img", "aria-label": label });
  const start = rows.reduce((sum, [, num]) => sum + tall(num), 0);
  svg.append(s("rect", { class: "bar tdim", x: 0, y: 8, width: WIDE, height: start, rx: 3 }), text(WIDE + 6, 8 + Math.min(24, start / 2 + 4), number(total), "sampled tokens"));
  let [left, y] = [8, 8];
  const at = {};
  for (const [fate, num] of rows) {
    const size = tall(num);
    svg.append(s("path", { class: `flow f-${fate}`, d: ribbon(xs[0] + WIDE, left, xs[1], y, size) }, s("title", {}, `${fate}: ${number(num)} tokens`)));
    svg.append(s("rect", { class: `bar f-${fate}`, x: xs[1], y, width: WIDE, height: size, rx: 3 }), text(xs[1] + WIDE + 6, y + Math.max(11, Math.min(size / 2 + 4, 24)), fate, `${share(num, total)}`, true));
    at[fate] = y;
    left += size;
    y += Math.max(size, 18) + GAP;
  }
  let below = 8;
  const room = width > 480; // on a phone the shares of the reasons stand in their hints only
  for (const [fate, name, num] of why) {
    const size = tall(num);
    below = Math.max(below, at[fate]); // a reason stands beside its fate, so that flows do not cross words
    svg.append(s("path", { class: `flow f-${fate}`, d: ribbon(xs[1] + WIDE, at[fate], xs[2], below, size) }, s("title", {}, `${name}: ${number(num)} tokens, ${share(num, total)}`)));
    svg.append(s("rect", { class: `bar f-${fate}`, x: xs[2], y: below, width: WIDE, height: size, rx: 3 }), text(xs[2] + WIDE + 6, below + Math.max(11, Math.min(size / 2 + 4, 24)), words(name), room ? share(num, total) : "", true));
    at[fate] += size;
    below += Math.max(size, 18) + GAP;
  }
  const needed = Math.max(y, below, start + 16);
  svg.setAttribute("height", Math.ceil(needed));
  return svg;
}

function text(x, y, strong, dim, inline = false) {
  return s("text", { class: "label", x, y }, s("tspan", { class: "strong" }, strong), inline ? s("tspan", { class: "soft", dx: 6 }, dim) : s("tspan", { class: "soft", x, dy: 16 }, dim));
}

function ribbon(x0, y0, x1, y1, size) {
  const mid = (x0 + x1) / 2;
  return `M${x0},${y0} C${mid},${y0} ${mid},${y1} ${x1},${y1} L${x1},${y1 + size} C${mid},${y1 + size} ${mid},${y0 + size} ${x0},${y0 + size} Z`;
}
