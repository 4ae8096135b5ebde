// Search the library by sentence or by clip, with concept words as filters.

import { ask } from "./api.js";
import { announce, byId, element, showError } from "./page.js";
import { clock } from "./player.js";

export class Searching {
  #open;
  #lastSearch = null; // { parameters, title }
  #filters = new Map(); // "concept" or "without" by word
  #cancel = new AbortController();

  // `open` is called with the hit to show.
  constructor({ open }) {
    this.#open = open;
    byId("search").hidden = false;
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      const query = byId("query").value.trim();
      if (query) this.search({ query }, `“${query}”`);
    });
    byId("found-close").addEventListener("click", () => this.close());
  }

  close() {
    this.#cancel.abort();
    byId("found").hidden = true;
    byId("query").focus();
  }

  // `parameters` is { query } or { like }.
  async search(parameters, title) {
    this.#cancel.abort();
    this.#cancel = new AbortController();
    this.#lastSearch = { parameters, title };
    const query = new URLSearchParams(parameters);
    for (const [word, kind] of this.#filters) query.append(kind, word);
    showError("");
    byId("found").hidden = false;
    byId("found").setAttribute("aria-busy", "true");
    byId("found-title").textContent = `Searching for ${title}`;
    try {
      const answer = await ask(`/api/search?${query}`, { signal: this.#cancel.signal });
      byId("found-title").textContent = `Found for ${title}`;
      this.#show(answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      byId("found-title").textContent = `Nothing found for ${title}`;
      byId("results").replaceChildren();
      showError(error.message);
    } finally {
      byId("found").setAttribute("aria-busy", "false");
    }
  }

  #show({ hits, has_match, trust, unknown }) {
    const notes = [];
    if (!hits.length) notes.push("Nothing in the library fits.");
    else if (!has_match) {
      const accuracy = trust ? ` (right for ${Math.round(100 * trust)} % of validation queries)` : "";
      notes.push(`Probably nothing in the library fits${accuracy}. The closest moments:`);
    }
    if (unknown.length) notes.push(`Not in the vocabulary of the model: ${unknown.join(", ")}.`);
    byId("found-none").textContent = notes.join(" ");
    byId("found-none").hidden = !notes.length;
    byId("results").replaceChildren(...hits.map((hit) => this.#result(hit)));
    this.#showFilters(hits);
    announce(`${hits.length} moments were found. ${notes.join(" ")}`);
  }

  // Concept words of the hits as filters. Clicks cycle through: only with the word, only without it, off.
  #showFilters(hits) {
    const counts = new Map();
    for (const { concepts } of hits) {
      for (const { word } of concepts) counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    const common = [...counts].sort((one, other) => other[1] - one[1]).map(([word]) => word);
    const words = [...new Set([...this.#filters.keys(), ...common])].slice(0, 14);
    byId("filters").replaceChildren(
      ...words.map((word) => {
        const kind = this.#filters.get(word);
        const text = { concept: `only ${word}`, without: `no ${word}` }[kind] ?? word;
        const chip = element("button", { type: "button", className: "chip" }, text);
        chip.setAttribute("aria-pressed", String(Boolean(kind)));
        chip.addEventListener("click", () => {
          if (!kind) this.#filters.set(word, "concept");
          else if (kind === "concept") this.#filters.set(word, "without");
          else this.#filters.delete(word);
          this.search(this.#lastSearch.parameters, this.#lastSearch.title);
        });
        return chip;
      }),
    );
  }

  #result(hit) {
    const picture = new Image();
    picture.src = `/api/library/${hit.id}/thumbnail`;
    picture.alt = "";
    picture.loading = "lazy";
    const time = element("span", {}, hit.end ? `${clock(hit.start)} – ${clock(hit.end)}` : "picture");
    const open = element("button", { type: "button", className: "open" }, picture, time);
    open.setAttribute("aria-label", `Open ${hit.name} at ${clock(hit.start)}`);
    open.addEventListener("click", () => this.#open(hit));
    if (!hit.is_picture) playOnHover(open, hit);
    const like = element("button", { type: "button", className: "quiet" }, "More like this");
    like.addEventListener("click", () => this.search({ like: hit.id }, `clips like ${hit.name}`));
    const matched = hit.matched.length ? hit.matched : hit.concepts.slice(0, 4).map(({ word }) => word);
    return element(
      "li",
      { className: "card result" },
      open,
      element(
        "div",
        { className: "about" },
        element("span", { className: "name" }, hit.name),
        element("span", { className: "hint" }, matched.length ? `concept words: ${matched.join(", ")}` : ""),
        like,
      ),
    );
  }
}

function playOnHover(place, { id, start, end }) {
  let video = null;
  const stop = () => {
    video?.remove();
    video = null;
  };
  const begin = () => {
    if (video || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    video = element("video", { muted: true, playsInline: true, src: `/api/library/${id}/video#t=${start}` });
    video.addEventListener("timeupdate", () => {
      if (video && end && video.currentTime > end) video.currentTime = start;
    });
    video.addEventListener("error", stop);
    place.querySelector("img").after(video);
    video.play().catch(stop);
  };
  place.addEventListener("pointerenter", begin);
  place.addEventListener("focus", begin);
  place.addEventListener("pointerleave", stop);
  place.addEventListener("blur", stop);
}
