// The overlay that names the keys.

import { h } from "./dom.js";

const FRAME = { "?": "this help", o: "overview", g: "groups", r: "rollouts", u: "back", t: "dark or light", Esc: "leave a field, close this" };

export function openHelp(keys = {}) {
  document.querySelector("dialog")?.remove();
  const rows = [...Object.entries(keys).map(([key, [text]]) => [key, text]), ...Object.entries(FRAME)];
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = h(
    "dialog",
    { "aria-label": "Keys", onclose: () => dialog.remove(), onclick: (event) => event.target === dialog && dialog.close() },
    h("h2", {}, "Keys"),
    h("dl", { class: "keys" }, rows.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, NAMES[key] ?? key)), h("dd", {}, text)))),
    close,
  );
  document.body.append(dialog);
  dialog.showModal();
}

const NAMES = { ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", PageUp: "PgUp", PageDown: "PgDn" };
