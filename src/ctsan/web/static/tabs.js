// Tabs with the keys that people know: arrows, Home and End.

import { byId, element } from "./page.js";

export class Tabs {
  #names = [];
  #choose;

  // `choose` is called with the name of the tab that the user picks.
  constructor({ choose }) {
    this.#choose = choose;
    byId("tabs").addEventListener("keydown", (event) => {
      const at = this.#names.indexOf(event.target.dataset.tab);
      const last = this.#names.length - 1;
      const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
      if (next === undefined || at < 0) return;
      event.preventDefault();
      const name = this.#names[(next + last + 1) % (last + 1)];
      this.#choose(name);
      byId(`tab-${name}`).focus();
    });
  }

  // `titles` by name, in order. A single tab needs no bar.
  show(titles, selected) {
    const names = Object.keys(titles);
    if (names.join() !== this.#names.join()) {
      byId("tabs").replaceChildren(...names.map((name) => this.#tab(name)));
      this.#names = names;
    }
    byId("tabs").hidden = names.length < 2;
    for (const name of ["shots", "description", "questions"]) byId(`panel-${name}`).hidden = name !== selected;
    for (const name of names) {
      const tab = byId(`tab-${name}`);
      tab.textContent = titles[name];
      tab.setAttribute("aria-selected", String(name === selected));
      tab.tabIndex = name === selected ? 0 : -1;
    }
  }

  #tab(name) {
    const tab = element("button", { type: "button", role: "tab", id: `tab-${name}` });
    tab.dataset.tab = name;
    tab.setAttribute("aria-controls", `panel-${name}`);
    tab.addEventListener("click", () => this.#choose(name));
    return tab;
  }
}
