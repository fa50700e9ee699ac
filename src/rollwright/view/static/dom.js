// Elements from plain values. Text only ever enters through text nodes, so no model can write markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export function replace(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

export function say(text) {
  document.getElementById("said").textContent = text;
}

export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

// A row of buttons of which one is on.
export function choice(label, options, value, onpick) {
  const buttons = options.map(([name, text]) =>
    h("button", { type: "button", "aria-pressed": String(name === value), data: { name }, onclick: () => pick(name) }, text),
  );
  function pick(name) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.name === name));
    onpick(name);
  }
  return h("div", { class: "choice", role: "group", "aria-label": label }, h("span", { class: "label" }, label), buttons);
}
