// The stretches of a rollout, folded by turn; tool calls and thoughts inside them fold too.

import { h, replace } from "./dom.js";
import { number } from "./format.js";
import { about, paint, token } from "./tokens.js";

export const COLOUR_KEYS = ["1", "2", "3", "4", "5", "6"];
const LONG = 1500; // tokens of a prompt or an observation that begins folded
const AT_ONCE = 12000; // tokens of one stretch that are drawn; a button draws the rest
const FOLDS = [
  [/<tool_call>[\s\S]*?<\/tool_call>/g, "tool call"],
  [/<think>[\s\S]*?<\/think>/g, "thought"],
];

export function body(segments, { token: chosen = null, told = () => {} } = {}) {
  const info = h("p", { class: "info", role: "status" }, "Point at a token, or press → to go from token to token.");
  const alternatives = h("p", { class: "alternatives" });
  const bar = h("div", { class: "inspector" }, info, alternatives);
  const spans = [];
  let colours = { of: () => "" };
  let turn = 0;
  let place = 0;
  const parts = segments.map((seg, number) => {
    if (seg.origin === "sampled" && segments[number - 1]?.origin !== "sampled") turn += 1;
    const from = place;
    place += seg.tokens.length;
    return segment(seg, number, from, turn);
  });
  const element = h("div", { class: "segments" }, parts, bar);

  function segment(seg, number, from, turn) {
    const text = h("div", { class: "text" });
    const isLong = seg.origin !== "sampled" && seg.tokens.length > LONG;
    const part = h("details", { class: `segment o-${seg.origin}`, open: !isLong }, heading(seg, turn), text);
    draw(seg, number, from, text, 0);
    return part;
  }

  function draw(seg, number, from, text, begin) {
    const end = Math.min(seg.tokens.length, begin + AT_ONCE);
    const made = [];
    for (let k = begin; k < end; k++) {
      const span = token(seg.pieces?.[k], seg.tokens[k], colours.of(seg, k), { segment: number, step: k, place: from + k });
      spans[from + k] = span;
      made.push(span);
    }
    text.append(...(seg.pieces ? folded(made, seg.pieces.slice(begin, end)) : made));
    if (seg.pieces === null && seg.text) text.append(paint(h("pre", { class: "plaintext" }), seg.text));
    if (end < seg.tokens.length) {
      const more = h("button", { type: "button", onclick: () => (more.remove(), draw(seg, number, from, text, end)) }, `show the next of ${left(seg, end)} tokens that are not drawn yet`);
      text.append(more);
    }
  }

  function point(span) {
    element.querySelector(".tok.on")?.classList.remove("on");
    if (!span) return;
    span.classList.add("on");
    chosen = Number(span.dataset.place);
    const seg = segments[Number(span.dataset.segment)];
    const k = Number(span.dataset.step);
    info.textContent = about(seg, k, chosen);
    const top = seg.top?.[k];
    replace(alternatives, top ? ["most likely: ", top.map((one) => h("span", { class: "alt" }, paint(h("b", {}, ""), one.piece ?? `⟨${one.token}⟩`), ` ${(100 * Math.exp(one.logprob)).toPrecision(3)}%`))] : "");
  }

  element.addEventListener("pointerover", (event) => event.target.closest(".tok") && point(event.target.closest(".tok")));
  element.addEventListener("click", (event) => {
    const span = event.target.closest(".tok");
    if (span && String(getSelection()) === "") {
      point(span);
      told(chosen);
    }
  });
  return {
    element,
    paint(found) {
      colours = found;
      for (const span of spans) {
        if (!span) continue;
        const tone = found.of(segments[Number(span.dataset.segment)], Number(span.dataset.step));
        span.className = [...span.classList].filter((name) => !name.startsWith("c-")).join(" ") + (tone ? ` ${tone}` : "");
      }
    },
    move(by) {
      const next = spans[chosen === null ? 0 : Math.max(0, Math.min(chosen + by, spans.length - 1))];
      if (!next) return;
      for (let box = next.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
      point(next);
      told(chosen);
      next.scrollIntoView({ block: "nearest" });
    },
    goTo() {
      if (chosen === null || !spans[chosen]) return;
      point(spans[chosen]);
      spans[chosen].scrollIntoView({ block: "center" });
    },
    fold() {
      const all = [...element.querySelectorAll("details")];
      const open = all.some((one) => one.open);
      for (const one of all) one.open = !open;
    },
  };
}

const left = (seg, end) => number(seg.tokens.length - end);

function heading(seg, turn) {
  const words = [seg.origin === "sampled" ? `turn ${turn}` : seg.origin, `${number(seg.tokens.length)} tokens`];
  if (seg.tokens.length < seg.num_steps) words.push(`of ${number(seg.num_steps)}, left by a fork`);
  if (seg.version !== null) words.push(`version ${seg.version}`);
  if (seg.temperature !== null && seg.temperature !== 1) words.push(`temperature ${number(seg.temperature)}`);
  if (seg.reward !== null) words.push(`reward ${number(seg.reward)}`);
  if (seg.stop && seg.stop !== "interrupted") words.push(`ended by ${seg.stop}`);
  if (seg.replayed) words.push("replayed");
  return h("summary", {}, h("b", {}, words[0]), h("span", { class: "dim" }, ` · ${words.slice(1).join(" · ")}`));
}

// Wrap the tokens of tool calls and thoughts in folds of their own; they begin open.
function folded(spans, pieces) {
  const whole = pieces.join("");
  const starts = [];
  let at = 0;
  for (const piece of pieces) {
    starts.push(at);
    at += piece.length;
  }
  const found = FOLDS.flatMap(([pattern, name]) => [...whole.matchAll(pattern)].map((match) => [match.index, match.index + match[0].length, name])).sort((a, b) => a[0] - b[0]);
  const out = [];
  let k = 0;
  for (const [from, to, name] of found) {
    while (k < spans.length && starts[k] < from) out.push(spans[k++]);
    const inside = [];
    while (k < spans.length && starts[k] < to) inside.push(spans[k++]);
    if (inside.length) out.push(h("details", { class: "fold", open: true }, h("summary", {}, `${name}, ${number(inside.length)} tokens`), inside));
  }
  return [...out, ...spans.slice(k)];
}
