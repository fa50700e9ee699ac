// One rollout: every token with what is known of it, turn by turn.

import { get } from "./api.js";
import { choice, h, replace, say } from "./dom.js";
import { number, words } from "./format.js";
import { diffName, go, groupParts, link, note, rolloutParts } from "./route.js";
import { body, COLOUR_KEYS } from "./segments.js";
import { COLOURS, legendOf, scale } from "./tokens.js";

export async function rollout(root, { run, runs, parts, query }) {
  const [kind, step, groupIndex, index] = parts.slice(3);
  const address = (r) => `runs/${r}/rollout/${encodeURIComponent(kind)}/${step}/${groupIndex}/${index}`;
  const data = await get(address(run));
  let colour = query.colour ?? "advantage";
  const text = body(data.segments, { token: query.token === undefined ? null : Number(query.token), told: (place) => note({ token: place ?? "" }) });
  const legend = h("div", {});
  const paintAll = () => {
    const found = scale(colour, data.segments);
    text.paint(found);
    replace(legend, legendOf(found));
  };
  const pick = (name) => {
    colour = name;
    note({ colour: name });
    paintAll();
  };
  const colours = choice("Colour", COLOURS, colour, pick);
  const whole = data.segments.flatMap((seg) => seg.pieces ?? [seg.text ?? ""]).join("");
  const copy = h("button", { type: "button", onclick: () => navigator.clipboard.writeText(whole).then(() => say("copied"), () => say("the browser did not let the page copy")) }, "Copy text");
  replace(root, title(run, data), facts(data), h("div", { class: "bar" }, colours, h("span", { class: "grow" }), h("button", { type: "button", onclick: () => text.fold() }, "Fold or unfold"), copy, others(run, runs, data)), legend, text.element, extras(data));
  paintAll();
  text.goTo();
  const place = data.siblings.findIndex((one) => one.index === data.index);
  const sibling = (by) => {
    const next = data.siblings[(place + by + data.siblings.length) % data.siblings.length];
    go(rolloutParts(run, { ...data, index: next.index }), { colour });
  };
  const press = (name) => root.querySelector(`.choice button[data-name="${name}"]`)?.click();
  return {
    keys: {
      n: ["next rollout of the group", () => sibling(1)],
      p: ["rollout before", () => sibling(-1)],
      ArrowRight: ["next token", () => text.move(1)],
      ArrowLeft: ["token before", () => text.move(-1)],
      f: ["fold or unfold", () => text.fold()],
      c: ["copy the text", () => copy.click()],
      ...Object.fromEntries(COLOUR_KEYS.map((key, k) => [key, [`colour by ${COLOURS[k][1]}`, () => press(COLOURS[k][0])]])),
      b: ["the group's tree", () => go(groupParts(run, data))],
    },
  };
}

function title(run, data) {
  return h(
    "div",
    { class: "title" },
    h("h1", {}, `Rollout ${data.index} of `, h("a", { href: link(groupParts(run, data)) }, data.group)),
    h("p", { class: "chips", "aria-label": "Rollouts of the group" }, data.siblings.map((one) =>
      h("a", { class: `chip ${one.reward === null ? "none" : one.reward > 0 ? "good" : "bad"}`, href: link(rolloutParts(run, { ...data, index: one.index })), "aria-current": one.index === data.index ? "true" : null }, `${one.index}: ${number(one.reward)}`),
    )),
  );
}

function facts(data) {
  const ended = data.terminated ? "ended by itself" : data.truncated ? "cut" : "open";
  const versions = data.oldest_version === data.newest_version ? number(data.newest_version) : `${data.oldest_version} to ${data.newest_version}`;
  const rows = [
    ["reward", data.reward === null ? "not scored" : number(data.reward)],
    data.score !== data.reward ? ["score", number(data.score)] : null,
    ["verdict", words(data.status)],
    ["fate", data.reason ? `${data.fate}: ${words(data.reason)}` : data.fate],
    ["step", `${data.step}${data.kind === "train" ? "" : ` (${data.kind})`}`],
    ["tokens", `${number(data.num_sampled)} sampled, ${number(data.num_prompt)} prompt`],
    ["turns", number(data.num_turns)],
    ["end", `${data.stop ?? "none"}, ${ended}`],
    ["version", versions],
    ["age", number(data.age)],
    data.weight !== 1 ? ["weight", number(data.weight)] : null,
    data.baseline !== null ? ["baseline", number(data.baseline)] : null,
    data.replayed ? ["replayed", "yes"] : null,
    ...Object.entries(data.rewards).map(([name, value]) => [words(name), number(value)]),
  ].filter(Boolean);
  return h("dl", { class: "facts" }, rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

// Rollouts that this one can be compared with: its siblings, and the same one in the other runs.
function others(run, runs, data) {
  const mine = diffName(run, data);
  const options = [
    ...data.siblings.filter((one) => one.index !== data.index).map((one) => [diffName(run, { ...data, index: one.index }), `rollout ${one.index}`]),
    ...runs.flatMap((one, k) => (k === run ? [] : [[diffName(k, data), `the same in ${one.name}`]])),
  ];
  if (!options.length) return null;
  return h("select", { "aria-label": "Compare with", onchange: (event) => event.target.value && go(["diff"], { a: mine, b: event.target.value }) }, h("option", { value: "" }, "Compare with…"), options.map(([name, text]) => h("option", { value: name }, text)));
}

function extras(data) {
  if (!data.extras || data.extras === "{}") return null;
  return h("details", { class: "card" }, h("summary", {}, "Noted by graders and stages"), h("pre", {}, pretty(data.extras)), data.extras_non_finite.length ? h("p", { class: "dim" }, `not finite: ${data.extras_non_finite.join(", ")}`) : null);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
