// Search the library by sentence or by clip, with concept words as filters.

import { address, go, readAddress, searchOf } from "./address.js";
import { ask } from "./api.js";
import { card, knownMoment, placeholders } from "./cards.js";
import { announce, byId, count, element } from "./page.js";

const PAGE = 12;
const MOST = 96; // results that the server gives at once

export class SearchView {
  #nameOf; // name of a clip by id
  #shown = null; // address of the search whose results are on the page
  #cancel = new AbortController();

  constructor({ nameOf }) {
    this.#nameOf = nameOf;
    byId("search").classList.remove("off");
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      const query = byId("query").value.trim();
      if (!query) return;
      this.#shown = null; // also asks again for the same
      go({ query });
    });
    byId("more").addEventListener("click", () => {
      const state = readAddress();
      go({ ...state, pages: state.pages + 1 }, { isSame: true });
    });
  }

  get isEmpty() {
    return this.#shown === null;
  }

  // What is searched for, for titles and links back to the results.
  title({ query, like }) {
    if (query) return `“${query}”`;
    return `moments like ${knownMoment(like)?.name ?? this.#nameOf(like) ?? "this one"}`;
  }

  async show(state) {
    const search = searchOf(state);
    const title = this.title(search);
    document.title = `${title} · ctsan`;
    if (this.#shown === address(search)) return;
    const isMore = this.#shown === address({ ...search, pages: search.pages - 1 });
    this.#cancel.abort();
    this.#cancel = new AbortController();
    this.#shown = null;
    if (!isMore) this.#wait(`Searching for ${title}`);
    byId("more").disabled = true;
    byId("found").setAttribute("aria-busy", "true");
    try {
      const kept = isMore ? byId("results").children.length : 0;
      const answer = await this.#ask(search, kept, this.#cancel.signal);
      this.#shown = address(search);
      this.#show(answer, search, kept);
    } catch (error) {
      if (error.name !== "AbortError") this.#fail(error, title);
    } finally {
      byId("found").setAttribute("aria-busy", "false");
    }
  }

  // The results after the first `skip`, as many as the pages have; in several answers if they are many.
  async #ask({ query, like, only, no, pages }, skip, signal) {
    const parameters = new URLSearchParams(query ? { query } : { like });
    for (const word of only) parameters.append("concept", word);
    for (const word of no) parameters.append("without", word);
    const hits = [];
    for (;;) {
      const wanted = Math.min(MOST, PAGE * pages - skip - hits.length);
      parameters.set("n", wanted);
      parameters.set("skip", skip + hits.length);
      const answer = await ask(`/api/search?${parameters}`, { signal });
      hits.push(...answer.hits);
      const isLast = answer.hits.length < wanted;
      if (isLast || hits.length >= PAGE * pages - skip) return { ...answer, hits, isLast };
    }
  }

  #wait(title) {
    byId("found-title").textContent = title;
    byId("found-count").textContent = "";
    for (const id of ["corrected", "found-note", "closest", "more"]) byId(id).hidden = true;
    byId("results").replaceChildren(...placeholders(8));
  }

  #fail(error, title) {
    byId("found-title").textContent = `Nothing found for ${title}`;
    byId("results").replaceChildren();
    byId("filters").replaceChildren();
    byId("more").hidden = true;
    this.#note("found-note", error.message);
    announce(`Nothing found. ${error.message}`);
  }

  #show({ hits, isLast, has_match, is_judged, match_accuracy, ...answer }, search, kept) {
    if (kept) {
      this.#addCards(hits, search, isLast);
      return;
    }
    const title = this.title(search);
    const isNothing = !hits.length || !has_match;
    const isUnsure = isNothing && hits.length > 0 && match_accuracy === null;
    byId("found-title").textContent = isUnsure ? `Perhaps nothing matches ${title}`
      : isNothing ? `Nothing matches ${title}` : `Results for ${title}`;
    const isFiltered = search.only.length > 0 || search.no.length > 0;
    byId("found-count").textContent = isFiltered
      ? `${answer.allowed_shots.toLocaleString("en")} of ${count(answer.library_shots, "shot passes", "shots pass")} the filters`
      : `${count(answer.library_shots, "shot", "shots")} searched`;
    byId("corrected").hidden = !answer.corrections.length;
    byId("corrected").replaceChildren("Searched for: ", element("b", {}, answer.searched_for ?? ""));
    const notes = [];
    if (answer.unknown.length) notes.push(`The model does not know ${answer.unknown.map((word) => `“${word}”`).join(", ")}.`);
    if (isNothing && hits.length && match_accuracy) {
      notes.push(`In tests with ${Math.round(100 * match_accuracy)} of 100 sentences it was right whether a library has a match.`);
    }
    if (answer.negated) notes.push(`A sentence excludes nothing. To leave “${answer.negated}” out, press its word below twice.`);
    if (isUnsure) notes.push("A single word is hard to judge, a sentence less so.");
    if (answer.searched_for !== null && hits.length && !is_judged) notes.push("These are the nearest; whether they match was not judged.");
    if (!hits.length && isFiltered) notes.push("Take back a filter to see more.");
    this.#note("found-note", notes.join(" "));
    byId("closest").hidden = !isNothing || !hits.length;
    byId("results").replaceChildren();
    this.#showFilters(answer, search);
    this.#addCards(hits, search, isLast);
    const said = ["found-title", "corrected", "found-note"].filter((id) => !byId(id).hidden);
    announce(said.map((id) => byId(id).textContent).filter(Boolean).join(". "));
  }

  #addCards(hits, search, isLast) {
    const isMore = byId("results").children.length > 0;
    for (const link of document.querySelectorAll("#results .open")) {
      link.href = address({ ...search, moment: link.dataset.moment }); // the way back leads to all pages
    }
    const cards = hits.map((hit) => card(hit, { search }));
    byId("results").append(...cards);
    byId("more").hidden = isLast;
    byId("more").disabled = false;
    if (isMore) {
      cards[0]?.querySelector(".open").focus();
      announce(`${count(hits.length, "more moment", "more moments")}.`);
    }
  }

  #note(id, text) {
    byId(id).textContent = text;
    byId(id).hidden = !text;
  }

  // Concept words of the hits. Clicks cycle through: only with the word, only without it, off.
  #showFilters({ filters, words, library_shots }, { only, no, ...search }) {
    const isFocused = byId("filters").contains(document.activeElement);
    const focused = isFocused ? document.activeElement.dataset.word : null;
    const chosen = [...only, ...no].map((word) => {
      const known = filters.find((filter) => filter.word === word);
      // Shots that pass: those that show the word, or that do not show it.
      const shots = known?.is_excluded ? library_shots - known.shots : known?.shots;
      return { word, shown: known?.read_as ?? word, shots };
    });
    byId("filters").replaceChildren(
      ...[...chosen, ...words].map(({ word, shown = word, shots }) => {
        const isOnly = only.includes(word);
        const isNo = no.includes(word);
        const text = isOnly ? `only ${shown}` : isNo ? `no ${shown}` : word;
        const chip = element("button", { type: "button", className: "chip" }, text);
        chip.dataset.word = word;
        if (shots !== undefined) chip.append(element("small", { ariaLabel: count(shots, "shot", "shots") }, shots.toLocaleString("en")));
        chip.setAttribute("aria-pressed", String(isOnly || isNo));
        chip.addEventListener("click", () => {
          const others = { only: only.filter((each) => each !== word), no: no.filter((each) => each !== word) };
          if (isOnly) others.no.push(word);
          else if (!isNo) others.only.push(word);
          go({ ...search, ...others, pages: 1 });
        });
        return chip;
      }),
    );
    if (focused) document.querySelector(`#filters [data-word="${CSS.escape(focused)}"]`)?.focus();
  }
}
