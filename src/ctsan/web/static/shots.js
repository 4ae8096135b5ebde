// The shots of a film: those that the library has, or those of an upload, as they are described.

import { address } from "./address.js";
import { ask, wait } from "./api.js";
import { momentText } from "./cards.js";
import { announce, byId, count, element, showError, spanText } from "./page.js";

export class Shots {
  #player;
  #choose;
  #clip = null; // id of an upload
  #shots = []; // { start, end, row }
  #selected = -1;

  // `choose` is called with the number of a shot of an upload, from 0.
  constructor(player, { choose }) {
    this.#player = player;
    this.#choose = choose;
    byId("shots-cancel").addEventListener("click", () => {
      ask(`/api/clips/${this.#clip}/cancel`, { method: "POST" }).catch(showError);
    });
    player.addEventListener("frame", () => this.#follow());
  }

  get length() {
    return this.#shots.length;
  }

  clear() {
    this.#clip = null;
    this.#shots = [];
    this.#selected = -1;
    byId("shot-list").replaceChildren();
    byId("shots-progress-box").hidden = byId("vtt").hidden = true;
  }

  // Shots of a film of the library; `current` is the moment that is shown, `search` what led to it.
  showMoments(moments, { current, search }) {
    this.clear();
    for (const moment of moments) {
      const href = address({ ...search, moment: moment.id, tab: "shots" });
      this.#add(element("a", { href }), moment, `/api/library/${moment.id}/thumbnail`, momentText(moment) ?? "");
    }
    this.select(moments.findIndex(({ id }) => id === current));
  }

  // The file of their stored captions.
  offer(url) {
    byId("vtt").href = url;
    byId("vtt").hidden = false;
  }

  // Shots of an upload, added until all are described.
  async follow(clip, signal) {
    this.#clip = clip;
    for (;;) {
      const { state, progress, shots, error } = await ask(`/api/clips/${clip}/shots`, { signal });
      for (const shot of shots.slice(this.#shots.length)) {
        const number = this.#shots.length;
        const row = element("button", { type: "button" });
        row.addEventListener("click", () => this.#choose(number));
        this.#add(row, shot, `/api/clips/${clip}/shots/${number}/picture`, shot.caption);
      }
      const isRunning = state === "reading";
      byId("shots-progress-box").hidden = !isRunning;
      byId("shots-progress").value = progress;
      byId("vtt").href = `/api/clips/${clip}/shots.vtt`;
      byId("vtt").hidden = isRunning || !shots.length;
      if (!isRunning) {
        if (state === "failed") throw new Error(error);
        announce(`${shots.length} shots are described.`);
        return;
      }
      await wait(700, signal);
    }
  }

  // Play a shot of an upload from its start to its end.
  play(number) {
    const shot = this.#shots[number];
    if (!shot) return;
    this.select(number);
    this.#player.playPart(shot.start, shot.end);
  }

  // The shot before or after the selected one, as if it had been clicked.
  step(direction) {
    const next = Math.min(this.#shots.length - 1, Math.max(0, this.#selected + direction));
    if (next !== this.#selected) this.#shots[next]?.row.click();
  }

  select(number) {
    if (number === this.#selected) return;
    this.#shots[this.#selected]?.row.removeAttribute("aria-current");
    this.#selected = number;
    const row = this.#shots[number]?.row;
    if (!row) return;
    row.setAttribute("aria-current", "true");
    this.reveal();
  }

  // Scroll the list, and nothing else, to the selected shot.
  reveal() {
    const row = this.#shots[this.#selected]?.row;
    if (!row) return;
    const list = byId("shot-list");
    const { offsetTop, offsetHeight } = row.parentElement;
    const isAbove = offsetTop < list.scrollTop;
    const isBelow = offsetTop + offsetHeight > list.scrollTop + list.clientHeight;
    if (isAbove || isBelow) list.scrollTop = offsetTop - list.clientHeight / 3;
  }

  #add(row, { start, end }, url, caption) {
    const picture = element("img", { alt: "", loading: "lazy", src: url });
    row.append(picture, element("span", {}, element("time", {}, spanText({ start, end })), caption));
    this.#shots.push({ start, end, row });
    byId("shots-title").textContent = count(this.#shots.length, "shot", "shots");
    byId("shot-list").append(element("li", {}, row));
  }

  // Select the shot of an upload that is playing.
  #follow() {
    if (!this.#clip) return;
    const { time } = this.#player;
    const now = this.#shots.findIndex(({ start, end }) => time >= start && time < end);
    if (now >= 0) this.select(now);
  }
}
