// A run's first page: curves, the ledger, how rollouts are spread, and who worked when.

import { get } from "./api.js";
import { bars, histogram, lineChart } from "./charts.js";
import { card, h, replace } from "./dom.js";
import { flow } from "./flow.js";
import { number, percent, seconds, words } from "./format.js";
import { link, note } from "./route.js";
import { timeline } from "./timeline.js";

const USUAL = ["reward_mean", "length_mean", "entropy_mean", "age_mean", "zero_variance_share", "truncated_share"];
const TONES = { right: "tgood", wrong: "tdim" };
const BIG_JOURNAL = 64e6; // bytes beyond which a journal is read only when somebody asks

export async function overview(root, { run, query }) {
  let chosen = query.metric ? query.metric.split(",") : null;
  let lines = null;
  const draw = async () => {
    const found = await get(`runs/${run}/overview`);
    chosen ??= USUAL.filter((name) => found.metrics.includes(name)).slice(0, 4);
    const curves = chosen.length ? await get(`runs/${run}/series`, { name: chosen }) : {};
    const old = lines?.element;
    lines ??= timeline(run, query, found.journal_bytes > BIG_JOURNAL ? found.journal_bytes : 0);
    replace(root, page(run, found, curves, chosen, pick, old ?? lines.element));
  };
  const pick = (names) => {
    chosen = names;
    note({ metric: names.join(",") });
    draw();
  };
  await draw();
  return { refresh: () => Promise.all([draw(), lines.refresh()]), close: () => lines?.close(), keys: lines.keys };
}

function page(run, found, curves, chosen, pick, lines) {
  return [
    h("div", { class: "title" }, h("h1", {}, found.title), h("p", { class: "dim" }, `${found.path}: ${found.text}`)),
    found.notes.map((text) => h("p", { class: "notice" }, text)),
    facts(found),
    h("div", { class: "cards" }, success(found), ledger(found), metrics(found, curves, chosen, pick), spread(run, found), ends(run, found), settings(found)),
    card("Timeline", lines),
  ];
}

function facts(found) {
  const last = found.evaluations.at(-1);
  const first = found.evaluations[0];
  const spent = found.ledger.spent;
  const rows = [
    ["rollouts", number(found.num_rollouts)],
    ["groups", number(found.num_groups)],
    ["steps", number(found.num_steps)],
    ["sampled tokens", number(spent.sampled_tokens)],
    ["run time", seconds(spent.seconds)],
    last?.sampled_success === undefined ? null : ["held-out success", `${first === last ? "" : `${percent(first.sampled_success)} → `}${percent(last.sampled_success)}`],
  ].filter(Boolean);
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function success(found) {
  const held = (key) => found.evaluations.filter((row) => typeof row[`${key}_success`] === "number").map((row) => [row.step, row[`${key}_success`], row[`${key}_low`], row[`${key}_high`]]);
  const lines = [
    { name: "training rollouts", tone: "t0", points: found.success },
    { name: "held out, sampled", tone: "t1", points: held("sampled") },
    { name: "held out, greedy", tone: "t2", points: held("greedy") },
  ];
  return card("Success by step", lineChart("Success by step", lines, { from: 0 }), h("p", { class: "dim small" }, "Bands are 95% intervals over tasks."));
}

function ledger(found) {
  const { spent, granted } = found.ledger;
  const rows = Object.entries(spent).map(([unit, amount]) =>
    h("tr", {}, h("th", { scope: "row" }, words(unit)), h("td", { class: "num" }, unit === "seconds" ? seconds(amount) : number(amount)), h("td", { class: "num" }, granted[unit] === undefined ? "no limit" : number(granted[unit]))),
  );
  return card(
    "Where the sampled tokens went",
    flow(found.ledger),
    h("details", {}, h("summary", {}, "Units spent"), h("table", { class: "plain" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "unit"), h("th", { scope: "col", class: "num" }, "spent"), h("th", { scope: "col", class: "num" }, "granted"))), h("tbody", {}, rows))),
  );
}

function metrics(found, curves, chosen, pick) {
  const boxes = found.metrics.map((name) =>
    h("label", {}, h("input", { type: "checkbox", checked: chosen.includes(name), onchange: (event) => pick(event.target.checked ? [...chosen, name] : chosen.filter((one) => one !== name)) }), name),
  );
  return card(
    "Metrics",
    chosen.map((name, k) => h("div", {}, h("h3", {}, words(name)), lineChart(words(name), [{ name: words(name), tone: `t${k % 6}`, points: curves[name] ?? [] }], { height: 110 }))),
    h("details", {}, h("summary", {}, `Choose among ${found.metrics.length} metrics`), h("div", { class: "boxes" }, boxes)),
  );
}

function spread(run, found) {
  const { width, bins } = found.lengths;
  const steps = found.length_by_step;
  const lines = [
    { name: "90%", tone: "t3", points: steps.map((row) => [row[0], row[3]]) },
    { name: "median", tone: "t0", points: steps.map((row) => [row[0], row[2]]) },
    { name: "10%", tone: "t5", points: steps.map((row) => [row[0], row[1]]) },
  ];
  return card(
    "Lengths in sampled tokens",
    histogram("Lengths", bins, width, ["right", "other"], ["tgood", "tdim"]),
    h("h3", {}, "By step"),
    lineChart("Lengths by step", lines, { from: 0, height: 140 }),
    h("p", {}, h("a", { href: link(["run", run, "rollouts"], { sort: "num_sampled", desc: 1 }) }, "longest rollouts")),
  );
}

function ends(run, found) {
  const where = (text) => link(["run", run, "rollouts"], { where: text });
  const quoted = (value) => `'${String(value).replaceAll("'", "''")}'`;
  const linked = (column, rows) =>
    bars(rows.map(([value, num], k) => [h("a", { href: where(value === null ? `${column} is null` : `${column} = ${quoted(value)}`) }, value ?? "none"), num, TONES[value] ?? `t${k % 6}`]));
  return card(
    "Ages and ends",
    h("h3", {}, "Age when trained, in versions"),
    histogram("Age", found.ages.map(([age, num]) => [age, num]), 1, ["rollouts"], ["t4"], { height: 110 }),
    h("h3", {}, "Verdict"),
    linked("status", found.statuses),
    h("h3", {}, "Why the last node ended"),
    linked("stop", found.stops),
    found.reasons.length ? [h("h3", {}, "Why not trained"), linked("reason", found.reasons)] : null,
  );
}

function settings(found) {
  const rows = flatten(found.config).filter(([, value]) => value !== null && value !== "");
  if (!rows.length) return card("Settings", h("p", { class: "dim" }, "this version cannot read them"));
  return card("Settings", h("div", { class: "tall", tabindex: "0", role: "region", "aria-label": "Settings" }, h("table", { class: "plain" }, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, String(value))))))));
}

export function flatten(value, prefix = "") {
  return Object.entries(value ?? {}).flatMap(([name, one]) =>
    one !== null && typeof one === "object" && !Array.isArray(one) ? flatten(one, `${prefix}${name}.`) : [[`${prefix}${name}`, Array.isArray(one) ? one.join(", ") : one]],
  );
}
