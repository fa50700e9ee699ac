// A list of any length of which only the visible rows exist. A browser lays out no element that is a million
// rows high, so beyond a height the bar stands for a share of the list and the wheel still moves by rows.

import { h } from "./dom.js";

const ROW = 30;
const TALLEST = 8_000_000;
const SPARE = 4;

export class Scroller {
  // row(place, element) fills a row; need(first, last) asks for rows; open(place); moved(first) tells where it stands.
  constructor({ row, need, open, moved }) {
    Object.assign(this, { fill: row, need, open, moved });
    this.total = 0;
    this.top = 0; // the first visible row, with its fraction
    this.chosen = 0;
    this.body = h("div", { class: "rows", role: "presentation" });
    this.space = h("div", { class: "space", role: "presentation" }, this.body);
    this.element = h("div", { class: "scroller", role: "rowgroup", tabindex: "0", "aria-label": "Rows" }, this.space);
    this.pool = [];
    this.element.addEventListener("scroll", () => this.scrolled());
    // Only once it stands still: to move the bar ends a smooth scroll.
    this.element.addEventListener("scrollend", () => this.total * ROW > TALLEST && this.bar());
    this.element.addEventListener("click", (event) => {
      const found = event.target.closest("[data-place]");
      if (found) this.open((this.chosen = Number(found.dataset.place)));
    });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  get visible() {
    return Math.max(1, Math.floor(this.element.clientHeight / ROW));
  }

  get first() {
    return Math.floor(this.top);
  }

  get height() {
    return Math.min(this.total * ROW, TALLEST);
  }

  // Pixels that the bar can move, and rows that the list can: equal measures while the list is short.
  get most() {
    return Math.max(1, this.height - this.element.clientHeight);
  }

  get lastTop() {
    return Math.max(0, this.total - this.element.clientHeight / ROW);
  }

  reset(total, keep) {
    this.total = total;
    this.space.style.height = `${this.height}px`;
    this.to(keep ? this.top : 0, keep ? this.chosen : 0);
  }

  to(place, chosen = place) {
    this.top = Math.max(0, Math.min(place, this.lastTop));
    this.chosen = Math.max(0, Math.min(chosen, this.total - 1));
    this.bar();
    this.draw();
  }

  // Put the bar where the list stands, without taking that for a scroll.
  bar() {
    this.expected = Math.round((this.top / (this.lastTop || 1)) * this.most);
    this.element.scrollTop = this.expected;
    this.seen = this.element.scrollTop;
  }

  scrolled() {
    const now = this.element.scrollTop;
    if (now === this.seen) return;
    const by = now - this.seen;
    const isScaled = this.total * ROW > TALLEST;
    if (isScaled && Math.abs(by) < this.element.clientHeight * 1.5 && now > 0 && now < this.most) {
      this.top = Math.max(0, Math.min(this.top + by / ROW, this.lastTop));
      this.seen = now;
      if (!("onscrollend" in window)) {
        clearTimeout(this.settling);
        this.settling = setTimeout(() => this.bar(), 300);
      }
    } else {
      this.top = (now / this.most) * this.lastTop;
      this.seen = now;
    }
    this.draw();
  }

  move(by) {
    this.chosen = Math.max(0, Math.min(this.chosen + by, this.total - 1));
    if (this.chosen < this.top) this.top = this.chosen;
    if (this.chosen + 1 > this.top + this.visible) this.top = Math.min(this.chosen + 1 - this.visible, this.lastTop);
    this.bar();
    this.draw();
  }

  draw() {
    if (this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.drawNow();
    });
  }

  drawNow() {
    const first = Math.max(0, this.first - SPARE);
    const last = Math.min(this.total - 1, this.first + this.visible + SPARE);
    const count = Math.max(0, last - first + 1);
    while (this.pool.length < count) this.pool.push(this.body.appendChild(h("div", { class: "row", role: "row" })));
    while (this.pool.length > count) this.pool.pop().remove();
    this.body.style.transform = `translateY(${this.element.scrollTop - (this.top - first) * ROW}px)`;
    this.pool.forEach((element, k) => {
      const place = first + k;
      element.dataset.place = place;
      element.setAttribute("aria-rowindex", place + 2);
      element.classList.toggle("chosen", place === this.chosen);
      element.classList.toggle("odd", place % 2 === 1);
      this.fill(place, element);
    });
    clearTimeout(this.asking);
    this.asking = setTimeout(() => {
      if (this.total) this.need(first, last);
      this.moved(this.first);
    }, 40);
  }
}
