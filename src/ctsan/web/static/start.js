// The start page: what is in the library, or example clips.

import { address } from "./address.js";
import { ask } from "./api.js";
import { card } from "./cards.js";
import { byId, count, element, showError } from "./page.js";

export class StartView {
  #shown = null; // the answer that is on the page, as text

  constructor({ bytes, seconds }) {
    if (bytes) {
      byId("drop-limits").textContent += `; up to ${Math.round(bytes / 2 ** 20)} MB and ${Math.round(seconds / 60)} minutes`;
    }
    for (const id of ["drop", "another"]) byId(id).addEventListener("click", () => byId("file").click());
  }

  async show() {
    document.title = "ctsan";
    const answer = await ask("/api/start").catch(showError);
    if (!answer || this.#shown === JSON.stringify(answer)) return;
    this.#shown = JSON.stringify(answer);
    const { library, clips, searches } = answer;
    byId("start").classList.toggle("has-library", Boolean(library));
    if (library) {
      byId("start-title").textContent = "What are you looking for?";
      byId("start-lead").textContent = "Describe a moment in a sentence. Everything stays on this machine.";
      byId("library-size").textContent = `${count(library.files, "file", "files")}, ${count(library.shots, "shot", "shots")} in “${library.name}”`;
    }
    byId("recent").hidden = !clips.length;
    byId("recent-title").textContent = library ? "Indexed last" : "Or try one of these";
    byId("recent-list").replaceChildren(...clips.map((hit) => card(hit, { tab: library ? "shots" : null, hasLike: Boolean(library) })));
    byId("search-list").hidden = !searches.length;
    byId("search-list").replaceChildren(
      ...searches.map((query) => element("li", {}, element("a", { className: "chip", href: address({ query }) }, query))),
    );
    this.#showUnread(library);
  }

  #showUnread(library) {
    byId("unread").hidden = !library?.unread_count;
    if (!library?.unread_count) return;
    byId("unread-title").textContent = `${count(library.unread_count, "file", "files")} could not be read`;
    const rest = library.unread_count - library.unread.length;
    byId("unread-list").replaceChildren(
      ...library.unread.map(({ name, reason }) => element("li", {}, element("b", {}, name), ` ${reason}`)),
      ...(rest ? [element("li", {}, `and ${count(rest, "other", "others")}`)] : []),
    );
  }
}
