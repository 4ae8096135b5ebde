// The shots of a long video, listed as they are described.

import { ask, wait } from "./api.js";
import { announce, byId, element, showUnlessAborted } from "./page.js";
import { clock } from "./player.js";

export class Shots {
  #player;
  #clip = null;
  #spans = [];

  constructor(player) {
    this.#player = player;
    byId("shots-cancel").addEventListener("click", () => {
      ask(`/api/clips/${this.#clip}/cancel`, { method: "POST" }).catch(showUnlessAborted);
    });
    player.addEventListener("frame", () => this.#mark());
  }

  clear() {
    this.#clip = null;
    this.#spans = [];
    byId("shots").hidden = true;
    byId("shot-list").replaceChildren();
  }

  async show(clip, signal) {
    this.#clip = clip;
    byId("shots").hidden = false;
    for (;;) {
      const { state, progress, shots, error } = await ask(`/api/clips/${clip}/shots`, { signal });
      for (const shot of shots.slice(this.#spans.length)) this.#add(clip, shot);
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

  #add(clip, { start, end, caption }) {
    const picture = new Image();
    picture.src = `/api/clips/${clip}/shots/${this.#spans.length}/picture`;
    picture.alt = "";
    const text = element("span", {}, element("time", {}, `${clock(start)} – ${clock(end)}`), caption);
    const button = element("button", { type: "button" }, picture, text);
    button.addEventListener("click", () => {
      this.#player.jump(start + 0.01);
      this.#player.play();
    });
    this.#spans.push({ start, end, button });
    byId("shot-list").append(element("li", {}, button));
  }

  #mark() {
    for (const { start, end, button } of this.#spans) {
      const isNow = this.#player.time >= start && this.#player.time < end;
      if (isNow !== (button.getAttribute("aria-current") === "true")) button.setAttribute("aria-current", isNow);
    }
  }
}
