// Two rollouts side by side: what they share, and where they part.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { number, words } from "./format.js";
import { link, rolloutParts } from "./route.js";
import { token } from "./tokens.js";

const SHOWN = 40; // shared tokens that are shown at either end of a long run; the rest folds

export async function diff(root, { runs, query }) {
  if (!query.a || !query.b) throw new Error("open two rollouts from a rollout's page: Compare with…");
  const found = await get("diff", { a: query.a, b: query.b });
  const [one, other] = await Promise.all([query.a, query.b].map(facts));
  const changed = found.runs.filter((run) => run.op === "changed").length;
  const first = found.first_difference === null ? "They are the same, token for token." : `The first ${number(found.first_difference)} tokens are the same, then ${changed} ${changed === 1 ? "stretch differs" : "stretches differ"}; ${number(found.num_same)} of ${number(found.num_a)} and ${number(found.num_b)} tokens are shared.`;
  replace(
    root,
    h("h1", {}, "Difference of two rollouts"),
    h("p", {}, first, found.is_exact ? "" : " They are too long for more than their ends to be compared."),
    h("div", { class: "diff" }, h("div", { class: "side" }, label(runs, query.a, one)), h("div", { class: "side" }, label(runs, query.b, other)), found.runs.map(rows)),
  );
  const places = [...root.querySelectorAll(".changed.left")];
  let at = -1;
  const next = (by) => {
    at = Math.max(0, Math.min(at + by, places.length - 1));
    places[at]?.scrollIntoView({ block: "center" });
  };
  return { keys: { n: ["next difference", () => next(1)], p: ["difference before", () => next(-1)] } };
}

async function facts(name) {
  const [run, kind, step, group, index] = name.split("/");
  return get(`runs/${run}/rollout/${encodeURIComponent(kind)}/${step}/${group}/${index}`);
}

function label(runs, name, data) {
  const run = Number(name.split("/")[0]);
  return [
    h("h2", {}, h("a", { href: link(rolloutParts(run, data)) }, `${runs.length > 1 ? `${runs[run].name}: ` : ""}${data.group}, rollout ${data.index}`)),
    h("p", { class: "dim" }, `reward ${number(data.reward)} · ${words(data.status)} · ${data.fate} · ${number(data.num_sampled)} sampled tokens · step ${data.step}`),
  ];
}

function rows(run) {
  if (run.op === "changed") return [h("div", { class: "text changed left" }, tokens(run.a, "gone")), h("div", { class: "text changed right" }, tokens(run.b, "come"))];
  return [h("div", { class: "text same" }, shared(run.a)), h("div", { class: "text same right" }, shared(run.b))];
}

const tokens = (steps, tone = "") => steps.map(([id, piece, origin]) => token(piece, id, `${tone} ${origin === "sampled" ? "" : "read"}`, {}));

function shared(steps) {
  if (steps.length <= 3 * SHOWN) return tokens(steps);
  const inside = steps.slice(SHOWN, -SHOWN);
  return [tokens(steps.slice(0, SHOWN)), h("details", { class: "fold" }, h("summary", {}, `${number(inside.length)} shared tokens`), tokens(inside)), tokens(steps.slice(-SHOWN))];
}
