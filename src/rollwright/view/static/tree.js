// A token tree drawn to scale: a node is a bar as long as its tokens, and begins where it leaves its parent.

import { h, s } from "./dom.js";
import { number } from "./format.js";

const ROW = 24;
const BAR = 14;
const RIGHT = 108; // pixels for the words at a leaf
const PROMPT_SHARE = 0.14; // prompts are often long and always shared: they are drawn shorter

export function tree(data, { width, tone, opened, open }) {
  const wide = Math.max(width - 4, 420);
  const children = new Map(data.nodes.map((one) => [one.node, []]));
  const root = data.nodes[0];
  for (const one of data.nodes) if (one.parent !== null) children.get(one.parent)?.push(one);
  const row = new Map();
  const rows = assign(root, children, row);
  const longest = Math.max(...data.nodes.map((one) => one.start + one.num_steps), 1);
  const prompt = root.num_steps;
  const promptWide = prompt ? Math.min(wide * PROMPT_SHARE, ((wide - RIGHT) * prompt) / longest) : 0;
  const X = (t) => (t <= prompt ? (t / (prompt || 1)) * promptWide : promptWide + ((t - prompt) / (longest - prompt || 1)) * (wide - RIGHT - promptWide));
  const Y = (one) => 6 + row.get(one.node) * ROW;
  const ends = new Map();
  for (const one of data.trajectories) ends.set(one.leaf, [...(ends.get(one.leaf) ?? []), one]);
  const colours = toneOf(tone, data);
  const by = new Map();
  const svg = s("svg", { width: wide, height: rows * ROW + 12, role: "group", "aria-label": `Tree of ${data.nodes.length} nodes and ${data.trajectories.length} rollouts` });
  for (const one of data.nodes) {
    if (one.parent === null) continue;
    const parent = data.nodes.find((p) => p.node === one.parent);
    if (parent && row.get(parent.node) !== row.get(one.node)) {
      const x = X(parent.start + one.at);
      svg.append(s("path", { class: "branch", d: `M${x},${Y(parent) + BAR / 2} V${Y(one) + BAR / 2 - 5} q0,5 5,5` }));
    }
  }
  for (const one of data.nodes) {
    const [x0, x1] = [X(one.start), X(one.start + one.num_steps)];
    const name = `${one.origin} node ${one.node}, ${number(one.num_steps)} tokens${one.version === null ? "" : `, version ${one.version}`}`;
    const bar = s("rect", { class: `node ${colours.of(one)}`, x: x0 + 0.5, y: Y(one), width: Math.max(3, x1 - x0 - 1), height: BAR, rx: 3 }, s("title", {}, one.text ? `${name}\n${one.text}` : name));
    const box = s("g", { class: "nodebox", role: "button", tabindex: "0", "aria-label": name, data: { node: one.node }, onclick: () => open(one.node), onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), open(one.node)) }, s("rect", { class: "hit", x: x0 - 1, y: Y(one) - 4, width: Math.max(8, x1 - x0 + 2), height: ROW }), bar);
    if (one.node === opened) box.classList.add("open");
    by.set(one.node, box);
    svg.append(box);
    for (const end of ends.get(one.node) ?? []) {
      const reward = end.reward === null ? "not scored" : number(end.reward);
      svg.append(s("text", { class: "label", x: Math.max(x1, x0 + 3) + 6, y: Y(one) + 11 }, s("tspan", { class: "strong" }, `${end.index}: ${reward}`), end.fate === "trained" ? null : s("tspan", { class: "soft", dx: 5 }, end.fate)));
    }
  }
  return {
    element: svg,
    width,
    legend: h("p", { class: "legend" }, colours.legend.map(([cls, text]) => h("span", {}, h("i", { class: `swatch ${cls}` }), text)), h("span", { class: "dim" }, "a bar is as long as its tokens; the prompt is drawn shorter")),
    mark(name) {
      for (const [one, box] of by) box.classList.toggle("open", one === name);
    },
  };
}

// Give each leaf a row, in depth-first order; a node shares the row of the child that goes on at its end.
function assign(root, children, row) {
  let next = 0;
  const stack = [[root, next++]];
  while (stack.length) {
    const [one, at] = stack.pop();
    row.set(one.node, at ?? next++);
    const below = children.get(one.node);
    const straight = below.find((child) => child.at === one.num_steps);
    // Pushed in reverse: the child that goes straight on is drawn first, then forks, the latest first, so that
    // no branch crosses another; those that leave at one place stand in the order of their creation.
    const forks = below.filter((child) => child !== straight).reverse().sort((a, b) => a.at - b.at);
    for (const child of forks) stack.push([child, null]);
    if (straight) stack.push([straight, row.get(one.node)]);
  }
  return next;
}

function toneOf(kind, data) {
  if (kind === "fate") {
    const fateOf = (one) => Object.entries(one.fates).sort((a, b) => b[1] - a[1])[0]?.[0];
    const here = [...new Set(data.nodes.map(fateOf).filter(Boolean))];
    return { of: (one) => (fateOf(one) ? `f-${fateOf(one)}` : "tdim"), legend: [...here.map((fate) => [`f-${fate}`, fate]), ["tdim", "not sampled"]] };
  }
  if (kind === "version") {
    const found = [...new Set(data.nodes.map((one) => one.version).filter((v) => v !== null))].sort((a, b) => a - b);
    return { of: (one) => (one.version === null ? "tdim" : `t${found.indexOf(one.version) % 6}`), legend: found.slice(0, 8).map((v, k) => [`t${k % 6}`, `version ${v}`]) };
  }
  if (kind === "origin") {
    const tones = { sampled: "t0", prompt: "tdim", observation: "t3", hint: "t4" };
    return { of: (one) => tones[one.origin], legend: Object.entries(tones).map(([name, cls]) => [cls, name]) };
  }
  const key = kind === "entropy" ? "entropy" : "advantage";
  const values = data.nodes.map((one) => one[key]).filter((v) => typeof v === "number");
  const most = Math.max(...values.map(Math.abs), 0);
  if (key === "advantage" && values.length && !most) return { of: (one) => (typeof one.advantage === "number" ? "n-d0" : "tdim"), legend: [["n-d0", "all advantages are 0"]] };
  if (key === "entropy") return { of: (one) => (typeof one.entropy === "number" ? `n-s${Math.round((4 * one.entropy) / (most || 1))}` : "tdim"), legend: values.length ? [["n-s0", "entropy 0"], ["n-s4", number(most)]] : [["tdim", "not recorded"]] };
  const level = (v) => (v === 0 ? 0 : Math.sign(v) * Math.max(1, Math.round((3 * Math.abs(v)) / most)));
  return { of: (one) => (typeof one.advantage === "number" ? `n-d${level(one.advantage)}` : "tdim"), legend: values.length ? [["n-d-3", `advantage ${number(-most)}`], ["n-d0", "0"], ["n-d3", `+${number(most)}`]] : [["tdim", "no advantages"]] };
}
