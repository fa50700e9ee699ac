// The frame around all pages: which page the address names, the header, keys, and staying up to date.

import { get } from "./api.js";
import { h, replace, say } from "./dom.js";
import { openHelp } from "./help.js";
import { go, link, parse } from "./route.js";
import { compare } from "./compare.js";
import { diff } from "./diff.js";
import { group } from "./group.js";
import { list } from "./list.js";
import { overview } from "./overview.js";
import { rollout } from "./rollout.js";
import { start } from "./start.js";

const POLL_MS = 2000;
const POLL_IDLE_MS = 15000;
const top = document.getElementById("top");
const main = document.getElementById("main");
let runs = [];
let page = null;
let shown = 0;

const PAGES = { "": overview, overview, groups: list, rollouts: list, group, rollout };

function pageOf(parts) {
  if (parts[0] === "run" && runs[Number(parts[1])]) return PAGES[parts[2] ?? ""];
  if (parts[0] === "compare") return compare;
  if (parts[0] === "diff") return diff;
  return parts.length === 0 ? start : undefined;
}

async function show() {
  const mine = ++shown;
  page?.close?.();
  page = null;
  const route = parse();
  if (route.parts.length === 0 && runs.length === 1) {
    history.replaceState(null, "", link(["run", 0, "overview"]));
    return show();
  }
  header(route);
  const root = h("div", { class: "page" }, h("p", { class: "dim" }, "…"));
  replace(main, root);
  const open = pageOf(route.parts);
  try {
    if (open === undefined) throw new Error(`there is no page ${location.hash}`);
    const made = await open(root, { ...route, runs, run: Number(route.parts[1]) });
    if (mine === shown) page = made ?? {};
    else made?.close?.();
  } catch (error) {
    if (mine === shown) replace(root, h("div", { class: "error", role: "alert" }, error.message));
  }
}

function header({ parts }) {
  const run = parts[0] === "run" ? Number(parts[1]) : null;
  const status = run === null ? null : runs[run];
  const tab = (name, text, target) =>
    h("a", { href: link(target), "aria-current": name === parts[2] || name === parts[0] ? "page" : null }, text);
  const picker =
    runs.length > 1 && run !== null
      ? h(
          "select",
          { "aria-label": "Run", onchange: (event) => go(["run", event.target.value, ["groups", "rollouts"].includes(parts[2]) ? parts[2] : "overview"]) },
          runs.map((one, k) => h("option", { value: k, selected: k === run }, one.name)),
        )
      : null;
  replace(
    top,
    h("a", { class: "brand", href: "#/", "aria-label": "rollwright: all runs" }, h("img", { src: "icon.svg", alt: "" }), h("span", {}, "rollwright")),
    picker ?? (status ? h("span", { class: "runname" }, status.name) : null),
    h(
      "nav",
      { "aria-label": "Pages" },
      run === null ? null : [tab("overview", "Overview", ["run", run, "overview"]), tab("groups", "Groups", ["run", run, "groups"]), tab("rollouts", "Rollouts", ["run", run, "rollouts"])],
      runs.length > 1 ? tab("compare", "Side by side", ["compare", run ?? 0, run === 1 ? 0 : 1]) : null,
    ),
    h("span", { class: "grow" }),
    status ? badge(status) : null,
    h("button", { type: "button", class: "icon", "aria-label": "Dark or light", title: "Dark or light (t)", onclick: theme }, "◐"),
    h("button", { type: "button", class: "icon", "aria-label": "Keys", title: "Keys (?)", onclick: () => openHelp(page?.keys) }, "?"),
  );
}

function badge(status) {
  return h("span", { class: `badge ${status.state}`, title: status.text, id: "state" }, status.state === "running" ? "live" : status.state);
}

// ---------------------------------------------------------------- dark and light

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("rollwright-theme", next);
  } catch {
    // A browser may refuse storage; the choice then holds for this page.
  }
}

try {
  const kept = localStorage.getItem("rollwright-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
} catch {
  // As above.
}

// ---------------------------------------------------------------- keys

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const { parts } = parse();
  const run = parts[0] === "run" ? parts[1] : 0;
  const frame = {
    "?": () => openHelp(page?.keys),
    t: theme,
    o: () => go(["run", run, "overview"]),
    g: () => go(["run", run, "groups"]),
    r: () => go(["run", run, "rollouts"]),
    u: () => history.back(),
  };
  const own = page?.keys?.[event.key];
  const action = own ? own[1] : frame[event.key];
  if (action && action(event) !== false) event.preventDefault();
});

// ---------------------------------------------------------------- live

async function poll() {
  let wait = POLL_IDLE_MS;
  if (!document.hidden) {
    try {
      const now = await get("runs");
      const changed = now.filter((run, k) => run.generation !== runs[k]?.generation || run.state !== runs[k]?.state);
      runs.splice(0, runs.length, ...now);
      if (now.some((run) => run.state === "running")) wait = POLL_MS;
      document.getElementById("lost")?.remove();
      if (changed.length) {
        header(parse());
        await page?.refresh?.();
      }
    } catch (error) {
      if (!document.getElementById("lost")) main.prepend(h("div", { class: "error", id: "lost", role: "alert" }, error.message));
    }
  }
  setTimeout(poll, wait);
}

window.addEventListener("hashchange", () => {
  show();
  say("page changed");
});

get("runs")
  .then((found) => {
    runs.push(...found);
    show();
    setTimeout(poll, runs.some((run) => run.state === "running") ? POLL_MS : POLL_IDLE_MS);
  })
  .catch((error) => replace(main, h("div", { class: "error", role: "alert" }, error.message)));
