// The first page where several runs are open: one card a run.

import { h, replace } from "./dom.js";
import { link } from "./route.js";

export async function start(root, { runs }) {
  const draw = () =>
    replace(
      root,
      h("h1", {}, "Runs"),
      h(
        "div",
        { class: "cards" },
        runs.map((run, k) =>
          h(
            "section",
            { class: "card" },
            h("h2", {}, h("a", { href: link(["run", k, "overview"]) }, run.name)),
            h("p", {}, run.title),
            h("p", { class: "dim" }, run.text),
            h("p", {}, runs.map((other, m) => (m === k ? null : h("a", { class: "chip", href: link(["compare", k, m]) }, `beside ${other.name}`)))),
          ),
        ),
      ),
    );
  draw();
  return { refresh: draw };
}
