// Groups or rollouts as a list of any length: a condition in SQL, an order, and only the rows that are seen.

import { get } from "./api.js";
import { choice, h, replace, say } from "./dom.js";
import { number, words } from "./format.js";
import { go, groupParts, link, note, rolloutParts } from "./route.js";
import { Scroller } from "./scroller.js";

const SHOWN = {
  groups: ["step", "group", "num_rollouts", "reward_mean", "num_right", "fate", "length_mean", "length_max", "age_max"],
  rollouts: ["step", "group", "index", "reward", "status", "fate", "num_sampled", "num_turns", "stop", "age"],
};
const EXAMPLES = {
  groups: ["reward_spread = 0", "num_right between 1 and num_rollouts - 1", "fate <> 'trained'", "age_max > 1"],
  rollouts: ["reward = 1", "fate <> 'trained'", "truncated", "reward is null", "response_text like '%=%'"],
};
const CHUNK = 100;
const WIDE = new Set(["group", "task", "extras"]);

export async function list(root, { run, parts, query }) {
  const table = parts[2];
  const state = { where: query.where ?? "", sort: query.sort ?? "", desc: query.desc === "1", columns: query.columns?.split(",") ?? SHOWN[table] };
  const known = await get(`runs/${run}/columns`, { table });
  let chunks = new Map();
  let asked = new AbortController();
  let generation = 0;

  const error = h("p", { class: "error hidden", role: "alert" });
  const count = h("p", { class: "dim", "aria-live": "polite" });
  const input = h("input", { type: "text", name: "where", value: state.where, spellcheck: "false", autocomplete: "off", placeholder: `a condition, for example ${EXAMPLES[table][0]}`, "aria-label": "Condition in SQL" });
  const form = h("form", { class: "filter", onsubmit: (event) => (event.preventDefault(), filter(input.value)) }, h("span", { class: "label", "aria-hidden": "true" }, "where"), input, h("button", { type: "submit" }, "Filter"));
  const examples = h("p", { class: "chips" }, EXAMPLES[table].map((text) => h("button", { type: "button", class: "chip", onclick: () => filter(text) }, text)), h("button", { type: "button", class: "chip", onclick: () => filter("") }, "all"));
  const head = h("div", { class: "thead", role: "row" });
  const scroller = new Scroller({ row, need, open, moved: (at) => note({ at: at || "" }) });
  const grid = h("div", { class: "grid", role: "table", "aria-label": table }, h("div", { role: "rowgroup" }, head), scroller.element);

  async function page(chunk) {
    const found = await get(`runs/${run}/rows`, { table, where: state.where, sort: state.sort, desc: state.desc ? 1 : 0, offset: chunk * CHUNK, limit: CHUNK }, asked.signal);
    const rows = found.rows.map((values) => Object.fromEntries(found.columns.map((name, k) => [name, values[k]])));
    return { ...found, rows };
  }

  function need(first, last) {
    for (let chunk = Math.floor(first / CHUNK); chunk <= Math.floor(last / CHUNK); chunk++) {
      if (chunks.has(chunk)) continue;
      const mine = chunks;
      mine.set(chunk, null);
      page(chunk)
        .then((found) => {
          if (mine !== chunks) return;
          if (found.generation !== generation) return refresh();
          mine.set(chunk, found.rows);
          scroller.draw();
        })
        .catch((problem) => {
          mine.delete(chunk);
          if (problem.name !== "AbortError") tell(problem.message);
        });
    }
    if (chunks.size > 80) for (const chunk of chunks.keys()) if (Math.abs(chunk * CHUNK - first) > 40 * CHUNK) chunks.delete(chunk);
  }

  function at(place) {
    return chunks.get(Math.floor(place / CHUNK))?.[place % CHUNK];
  }

  function row(place, element) {
    const values = at(place);
    replace(element, state.columns.map((name) => h("span", { role: "cell", class: cellClass(name, values?.[name]) }, values ? shown(name, values[name]) : "…")));
  }

  function open(place) {
    const values = at(place);
    if (values) go(table === "groups" ? groupParts(run, values) : rolloutParts(run, values));
  }

  function tell(text) {
    error.textContent = text;
    error.classList.toggle("hidden", !text);
  }

  async function load(keep) {
    asked.abort();
    asked = new AbortController();
    const first = keep ? Math.floor(scroller.first / CHUNK) : 0;
    let found;
    try {
      found = await page(first);
    } catch (problem) {
      if (problem.name !== "AbortError") tell(problem.message);
      return;
    }
    tell("");
    chunks = new Map([[first, found.rows]]);
    generation = found.generation;
    const text = `${number(found.total)} ${table}${state.where ? " fulfil it" : ""}`;
    count.textContent = text;
    say(text);
    grid.setAttribute("aria-rowcount", found.total + 1);
    scroller.reset(found.total, keep);
  }

  function filter(text) {
    state.where = input.value = text;
    note({ where: text, at: "" });
    load(false);
  }

  function sort(name) {
    state.desc = state.sort === name ? !state.desc : !WIDE.has(name) && name !== "step";
    state.sort = name;
    note({ sort: name, desc: state.desc ? 1 : "", at: "" });
    heads();
    load(false);
  }

  function heads() {
    grid.style.setProperty("--columns", state.columns.map((name) => (WIDE.has(name) ? "minmax(11rem, 2.4fr)" : "minmax(5.2rem, 1fr)")).join(" "));
    grid.style.setProperty("--least", `${state.columns.reduce((sum, name) => sum + (WIDE.has(name) ? 11 : 5.4), 0)}rem`);
    replace(head, state.columns.map((name) => {
      const on = state.sort === name;
      return h("span", { role: "columnheader", "aria-sort": on ? (state.desc ? "descending" : "ascending") : "none" }, h("button", { type: "button", onclick: () => sort(name), title: `order by ${name}` }, words(name), on ? (state.desc ? " ↓" : " ↑") : ""));
    }));
  }

  const boxes = known.map(([name, type]) => h("label", { title: type }, h("input", { type: "checkbox", checked: state.columns.includes(name), onchange: (event) => columns(name, event.target.checked) }), name));
  function columns(name, on) {
    state.columns = known.map(([one]) => one).filter((one) => (one === name ? on : state.columns.includes(one)));
    note({ columns: state.columns.join(",") });
    heads();
    scroller.draw();
  }

  const kinds = choice("List", [["groups", "groups"], ["rollouts", "rollouts"]], table, (name) => go(["run", run, name]));
  replace(
    root,
    h("h1", { class: "hidden" }, table),
    h("div", { class: "bar" }, kinds, form),
    h("div", { class: "bar" }, examples, h("details", { class: "columns" }, h("summary", {}, "Columns"), h("div", { class: "boxes" }, boxes)), count),
    error,
    grid,
  );
  heads();
  await load(false);
  if (query.at) scroller.to(Number(query.at));
  const refresh = () => load(true);
  const keys = {
    "/": ["write a condition", () => input.focus()],
    ArrowDown: ["next row", () => scroller.move(1)],
    ArrowUp: ["row before", () => scroller.move(-1)],
    j: ["next row", () => scroller.move(1)],
    k: ["row before", () => scroller.move(-1)],
    PageDown: ["further down", () => scroller.move(scroller.visible)],
    PageUp: ["further up", () => scroller.move(-scroller.visible)],
    Home: ["first row", () => scroller.to(0)],
    End: ["last row", () => scroller.to(Infinity)],
    Enter: ["open the row", (event) => (event.target.closest("button, a, summary") ? false : open(scroller.chosen))],
  };
  return { refresh, keys, close: () => asked.abort() };
}

function cellClass(name, value) {
  const kinds = [];
  if (typeof value === "number") kinds.push("num");
  if (name === "fate") kinds.push(`fate f-${value}`);
  if (name === "status") kinds.push(value === "right" ? "good" : "");
  return kinds.join(" ");
}

function shown(name, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return number(value);
}

export { link };
