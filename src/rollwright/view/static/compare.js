// Two runs side by side: their curves in one picture, their ledgers and lengths beside each other.

import { get } from "./api.js";
import { bars, histogram, lineChart } from "./charts.js";
import { card, h, replace } from "./dom.js";
import { flow } from "./flow.js";
import { number, percent, seconds, words } from "./format.js";
import { go, link, note } from "./route.js";
import { flatten } from "./overview.js";

const TONES = ["t0", "t1"];
const USUAL = ["reward_mean", "length_mean", "entropy_mean", "age_mean"];

export async function compare(root, { runs, parts, query }) {
  const pair = [Number(parts[1] ?? 0), Number(parts[2] ?? 1)];
  if (pair.some((k) => !runs[k])) throw new Error(`runs ${pair.join(" and ")} are not open; ${runs.length} are`);
  let chosen = query.metric ? query.metric.split(",") : null;
  const draw = async () => {
    const found = await Promise.all(pair.map((k) => get(`runs/${k}/overview`)));
    const known = [...new Set(found.flatMap((one) => one.metrics))];
    chosen ??= USUAL.filter((name) => known.includes(name));
    const series = await Promise.all(pair.map((k) => (chosen.length ? get(`runs/${k}/series`, { name: chosen }) : {})));
    const pick = (names) => ((chosen = names), note({ metric: names.join(",") }), draw());
    replace(root, page(runs, pair, found, series, known, chosen, pick));
  };
  await draw();
  return { refresh: draw, keys: { s: ["the other way round", () => go(["compare", pair[1], pair[0]])] } };
}

function page(runs, pair, found, series, known, chosen, pick) {
  const names = found[0].name === found[1].name ? found.map((one, k) => `${one.name} (${k + 1})`) : found.map((one) => one.name);
  const picker = (place) =>
    h("select", { "aria-label": place ? "Second run" : "First run", onchange: (event) => go(["compare", ...pair.map((k, m) => (m === place ? event.target.value : k))]) }, runs.map((run, k) => h("option", { value: k, selected: k === pair[place] }, run.name)));
  const boxes = known.map((name) => h("label", {}, h("input", { type: "checkbox", checked: chosen.includes(name), onchange: (event) => pick(event.target.checked ? [...chosen, name] : chosen.filter((one) => one !== name)) }), name));
  const lines = (points) => found.map((one, k) => ({ name: names[k], tone: TONES[k], points: points(one, k) }));
  const both = (draw) => h("div", { class: "two" }, found.map((one, k) => h("div", {}, h("h3", {}, names[k]), draw(one))));
  return [
    h("h1", {}, "Two runs side by side"),
    h("div", { class: "two" }, found.map((one, k) => h("div", {}, picker(k), h("p", {}, h("a", { href: link(["run", pair[k], "overview"]) }, one.title)), h("p", { class: "dim" }, one.text), one.notes.map((text) => h("p", { class: "notice" }, text))))),
    h("div", { class: "cards" },
      card("Success of the training rollouts", lineChart("Success", lines((one) => one.success), { from: 0 })),
      card("Held-out success", lineChart("Held-out success", lines((one) => one.evaluations.filter((row) => typeof row.sampled_success === "number").map((row) => [row.step, row.sampled_success, row.sampled_low, row.sampled_high])), { from: 0, xName: "version" })),
      card("Metrics", chosen.map((name) => h("div", {}, h("h3", {}, words(name)), lineChart(words(name), lines((_, k) => series[k][name] ?? []), { height: 120 }))), h("details", {}, h("summary", {}, `Choose among ${known.length} metrics`), h("div", { class: "boxes" }, boxes))),
      card("Totals", totals(names, found)),
    ),
    card("Where the sampled tokens went", both((one) => flow(one.ledger))),
    card("Lengths in sampled tokens", both((one) => histogram("Lengths", one.lengths.bins, one.lengths.width, ["right", "other"], ["tgood", "tdim"], { height: 130 }))),
    card("Verdicts", both((one) => bars(one.statuses.map(([name, num], k) => [name ?? "none", num, `t${k % 6}`])))),
    card("Settings that differ", differing(names, found)),
  ];
}

function totals(names, found) {
  const last = (one) => one.evaluations.at(-1)?.sampled_success;
  const spent = (name, show) => found.map((one) => show(one.ledger.spent[name]));
  const rows = [
    ["steps", found.map((one) => number(one.num_steps))],
    ["rollouts", found.map((one) => number(one.num_rollouts))],
    ["sampled tokens", spent("sampled_tokens", number)],
    ["trained tokens", found.map((one) => number(one.ledger.fates.trained))],
    ["learner tokens", spent("learner_tokens", number)],
    ["run time", spent("seconds", seconds)],
    ["held-out success, last", found.map((one) => percent(last(one)))],
  ];
  return h("table", { class: "plain" }, h("thead", {}, h("tr", {}, h("td", {}), names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, rows.map(([name, values]) => h("tr", {}, h("th", { scope: "row" }, name), values.map((value) => h("td", { class: "num" }, value))))));
}

function differing(names, found) {
  const [a, b] = found.map((one) => Object.fromEntries(flatten(one.config)));
  const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((key) => String(a[key]) !== String(b[key]));
  if (!keys.length) return h("p", { class: "dim" }, "none");
  return h("table", { class: "plain" }, h("thead", {}, h("tr", {}, h("td", {}), names.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, keys.map((key) => h("tr", {}, h("th", { scope: "row" }, key), [a, b].map((one) => h("td", {}, String(one[key] ?? "–")))))));
}
