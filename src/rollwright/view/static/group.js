// One group: its tree as a picture in which nodes can be opened, and its rollouts.

import { get } from "./api.js";
import { choice, h, replace } from "./dom.js";
import { number, words } from "./format.js";
import { diffName, go, link, note, rolloutParts } from "./route.js";
import { body } from "./segments.js";
import { COLOURS, legendOf, scale } from "./tokens.js";
import { tree } from "./tree.js";

const TONES = [["advantage", "advantage"], ["version", "version"], ["fate", "fate"], ["entropy", "entropy"], ["origin", "origin"]];

const NUMBERS = new Set(["reward", "tokens", "turns", "age"]);

export async function group(root, { run, parts, query }) {
  const [kind, step, index] = parts.slice(3);
  const address = `runs/${run}/group/${encodeURIComponent(kind)}/${step}/${index}`;
  let tone = query.tone ?? "advantage";
  let opened = query.node ?? null;
  const data = await get(address);
  const place = h("div", { class: "chart scroll tree", tabindex: "0", role: "region", "aria-label": "Tree" });
  const panel = h("div", { class: "panel" });
  let picture = null;
  const draw = () => {
    picture = tree(data, { width: place.clientWidth || 800, tone, opened, open });
    replace(place, picture.legend, picture.element);
  };
  async function open(name) {
    opened = name;
    note({ node: name });
    picture.mark(name);
    const found = data.nodes.find((one) => one.node === name);
    if (!found) return replace(panel, h("p", { class: "error" }, `there is no node ${name} in this group`));
    const seg = await get(`${address}/node`, { name });
    if (opened !== name) return;
    const text = body([seg]);
    const kinds = COLOURS.filter(([one]) => one !== "advantage");
    const legend = h("div", {});
    const colour = (one) => {
      const made = scale(one, [seg]);
      text.paint(made);
      replace(legend, legendOf(made));
    };
    const below = ends(found);
    replace(
      panel,
      h("h2", {}, "Node ", h("code", {}, name)),
      h("p", {}, summary(found)),
      h("p", { class: "chips" }, below.slice(0, 24).map((one) => h("a", { class: "chip", href: link(rolloutParts(run, { ...data, index: one.index })) }, `rollout ${one.index}: ${number(one.reward)}`)), below.length > 24 ? h("span", { class: "dim" }, `and ${below.length - 24} more`) : null),
      choice("Colour", kinds, "logprob", colour),
      legend,
      text.element,
    );
    colour("logprob");
  }
  // The rollouts whose path goes through a node.
  function ends(found) {
    const parents = Object.fromEntries(data.nodes.map((one) => [one.node, one.parent]));
    const passes = (leaf) => {
      for (let name = leaf; name; name = parents[name]) if (name === found.node) return true;
      return false;
    };
    return data.trajectories.filter((one) => passes(one.leaf));
  }
  replace(root, title(data), choice("Colour nodes by", TONES, tone, (name) => ((tone = name), note({ tone: name }), draw())), place, panel, rollouts(run, data));
  draw();
  if (opened) await open(opened);
  const watch = new ResizeObserver(() => Math.abs(place.clientWidth - picture.width) > 20 && draw());
  watch.observe(place);
  const step_ = (by) => {
    const at = data.nodes.findIndex((one) => one.node === opened);
    open(data.nodes[Math.max(0, Math.min(at + by, data.nodes.length - 1))].node);
  };
  return {
    close: () => watch.disconnect(),
    keys: {
      j: ["next node", () => step_(1)],
      k: ["node before", () => step_(-1)],
      Enter: ["the first rollout through the node", (event) => {
        if (event.target.closest("button, a, summary, [role=button]")) return false;
        const found = data.nodes.find((one) => one.node === opened);
        const first = found ? ends(found)[0] : data.trajectories[0];
        if (first) go(rolloutParts(run, { ...data, index: first.index }));
      }],
    },
  };
}

function title(data) {
  const scored = data.trajectories.filter((one) => typeof one.reward === "number");
  const mean = scored.length ? scored.reduce((sum, one) => sum + one.reward, 0) / scored.length : null;
  const forks = data.nodes.filter((one) => one.stream.includes("~") && one.at !== undefined && !data.nodes.some((p) => p.node === one.parent && p.stream === one.stream)).length;
  return h("div", { class: "title" }, h("h1", {}, data.group), h("p", { class: "dim" }, [`step ${data.step}`, data.kind === "train" ? null : data.kind, `${data.trajectories.length} rollouts`, `${data.nodes.length} nodes`, forks ? `${forks} forks` : null, `mean reward ${number(mean)}`].filter(Boolean).join(" · ")));
}

function summary(found) {
  const fates = Object.entries(found.fates).map(([fate, num]) => `${number(num)} tokens ${fate}`);
  const parts = [found.origin, `${number(found.num_steps)} tokens from position ${found.start}`, found.version === null ? null : `version ${found.version}`, found.advantage === null || found.advantage === undefined ? null : `mean advantage ${number(found.advantage)}`, found.stop ? `ended by ${found.stop}` : null, ...fates];
  return parts.filter(Boolean).join(" · ");
}

function rollouts(run, data) {
  const first = data.trajectories[0];
  return h(
    "section",
    { class: "card" },
    h("h2", {}, "Rollouts"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rollouts" }, h(
      "table",
      { class: "plain" },
      h("thead", {}, h("tr", {}, ["rollout", "reward", "verdict", "fate", "tokens", "turns", "age", "end", "difference"].map((name) => h("th", { scope: "col", class: NUMBERS.has(name) ? "num" : null }, name)))),
      h("tbody", {}, data.trajectories.map((one) =>
        h(
          "tr",
          {},
          h("td", {}, h("a", { href: link(rolloutParts(run, { ...data, index: one.index })) }, `rollout ${one.index}`)),
          h("td", { class: "num" }, one.reward === null ? "not scored" : number(one.reward)),
          h("td", {}, words(one.status)),
          h("td", { class: `fate f-${one.fate}` }, one.reason ? `${one.fate}: ${words(one.reason)}` : one.fate),
          h("td", { class: "num" }, number(one.num_sampled)),
          h("td", { class: "num" }, number(one.num_turns)),
          h("td", { class: "num" }, number(one.age)),
          h("td", {}, one.stop ?? "none"),
          h("td", {}, one === first ? "–" : h("a", { href: link(["diff"], { a: diffName(run, { ...data, index: first.index }), b: diffName(run, { ...data, index: one.index }) }) }, `to rollout ${first.index}`)),
        ),
      )),
    )),
  );
}
