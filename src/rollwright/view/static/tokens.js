// Tokens as text, coloured by what is known of each. What is shown and copied is the text itself, byte for
// byte; marks for what cannot be seen are drawn beside it.

import { h } from "./dom.js";
import { number } from "./format.js";

export const COLOURS = [["advantage", "advantage"], ["logprob", "logprob"], ["entropy", "entropy"], ["version", "version"], ["mask", "origin"], ["none", "none"]];
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb]/u;
const SPLIT = new RegExp(`(${HIDDEN.source})`, "u");

// A class of tokens.css for a value of each kind; ends say which values have the strongest colours.
export function scale(kind, segments) {
  if (kind === "advantage") {
    const most = Math.max(...numbers(segments, "advantages").map(Math.abs), 0);
    return { most, of: (seg, k) => (most ? diverging(value(seg.advantages, k), most) : ""), legend: most ? [["c-d-5", number(-most)], ["c-d0", "0"], ["c-d5", `+${number(most)}`]] : [["c-d0", "no advantages"]] };
  }
  if (kind === "logprob") return sequential("logprobs", segments, (v) => -v, 6, "logprob 0", (m) => number(-m));
  if (kind === "entropy") return sequential("entropies", segments, (v) => v, 3, "entropy 0", (m) => `${number(m)} nats`);
  if (kind === "version") {
    const found = [...new Set(segments.map((seg) => seg.version).filter((v) => v !== null))].sort((a, b) => a - b);
    return { of: (seg) => (seg.version === null ? "" : `c-k${found.indexOf(seg.version) % 8}`), legend: found.slice(0, 12).map((v, k) => [`c-k${k % 8}`, `version ${v}`]) };
  }
  if (kind === "mask") {
    const names = { sampled: "c-k0", prompt: "c-k7", observation: "c-k2", hint: "c-k4" };
    const here = Object.entries(names).filter(([origin]) => segments.some((seg) => seg.origin === origin));
    return { of: (seg, k) => (seg.origin === "sampled" && k < seg.forced ? "c-k3" : names[seg.origin]), legend: [...here.map(([name, tone]) => [tone, name === "sampled" ? "sampled: can be trained" : name]), ...(segments.some((seg) => seg.forced) ? [["c-k3", "chosen by the method"]] : [])] };
  }
  return { of: () => "", legend: [] };
}

function sequential(name, segments, sign, usual, zero, end) {
  const values = numbers(segments, name).map(sign);
  if (!values.length) return { of: () => "", legend: [["c-s0", "not recorded"]] };
  const most = Math.min(usual, Math.max(...values)) || 1;
  return { most, of: (seg, k) => { const v = value(seg[name], k); return v === null ? "" : `c-s${Math.min(8, Math.round((8 * Math.max(0, sign(v))) / most))}`; }, legend: [["c-s0", zero], ["c-s4", ""], ["c-s8", `${end(most)} or beyond`]] };
}

const value = (values, k) => (typeof values?.[k] === "number" ? values[k] : null);
const numbers = (segments, name) => segments.flatMap((seg) => (seg.origin === "sampled" ? (seg[name] ?? []) : [])).filter((v) => typeof v === "number");

function diverging(v, most) {
  if (v === null) return "";
  const k = Math.round((5 * v) / most);
  return `c-d${k === 0 && v !== 0 ? Math.sign(v) : k}`;
}

// One element a token. Characters that are not seen keep their place in the text, with a mark before them.
export function token(piece, id, className, data) {
  const text = piece ?? `⟨${id}⟩`;
  const span = h("span", { class: `tok ${className}${piece === null || piece === undefined ? " id" : ""}${text.includes("\n") ? " nl" : ""}`, data });
  return paint(span, text);
}

export function paint(element, text) {
  for (const part of text.split(SPLIT)) {
    if (!part) continue;
    if (HIDDEN.test(part)) element.append(h("span", { class: "ctl", data: { mark: mark(part) } }, part));
    else element.append(part);
  }
  return element;
}

function mark(char) {
  const code = char.codePointAt(0);
  if (code < 32) return String.fromCodePoint(0x2400 + code);
  return code === 127 ? "␡" : `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

export function legendOf(found) {
  return h("p", { class: "legend" }, found.legend.map(([tone, text]) => h("span", {}, h("i", { class: `swatch tok ${tone}` }), text)));
}

// What is known of one token, in a line.
export function about(seg, k, place) {
  const parts = [`token ${number(place)}`, `id ${seg.tokens[k]}`, seg.origin];
  const known = (name, values, digits = 4) => value(values, k) !== null && parts.push(`${name} ${Number(values[k].toPrecision(digits))}`);
  known("advantage", seg.advantages);
  known("logprob", seg.logprobs);
  if (value(seg.logprobs, k) !== null) parts.push(`p ${(100 * Math.exp(seg.logprobs[k])).toPrecision(3)}%`);
  known("entropy", seg.entropies);
  known("kept mass", seg.kept_masses);
  if (seg.version !== null && seg.version !== undefined) parts.push(`version ${seg.version}${seg.policy && seg.policy !== "policy" ? ` of ${seg.policy}` : ""}`);
  if (seg.origin === "sampled" && k < seg.forced) parts.push("chosen by the method");
  return parts.join(" · ");
}
