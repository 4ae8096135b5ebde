// The shots of a long video, as they are described.

import { ask, wait } from "./api.js";
import { at, element, say, showProblem } from "./page.js";
import { clock } from "./player.js";

export class Shots {
  #player;
  #clip = null;
  #spans = [];

  constructor(player) {
    this.#player = player;
    at("shots-cancel").addEventListener("click", () => {
      ask(`/api/clips/${this.#clip}/cancel`, { method: "POST" }).catch(showProblem);
    });
    player.addEventListener("frame", () => this.#mark());
  }

  clear() {
    this.#clip = null;
    this.#spans = [];
    at("shots").hidden = true;
    at("shot-list").replaceChildren();
  }

  async show(clip, signal) {
    this.#clip = clip;
    at("shots").hidden = false;
    for (;;) {
      const { state, progress, shots, error } = await ask(`/api/clips/${clip}/shots`, { signal });
      for (const shot of shots.slice(this.#spans.length)) this.#add(clip, shot);
      const isRunning = state === "reading";
      at("shots-progress-box").hidden = !isRunning;
      at("shots-progress").value = progress;
      at("vtt").href = `/api/clips/${clip}/shots.vtt`;
      at("vtt").hidden = isRunning || !shots.length;
      if (!isRunning) {
        if (state === "failed") throw new Error(error);
        say(`${shots.length} shots are described.`);
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
    at("shot-list").append(element("li", {}, button));
  }

  #mark() {
    for (const { start, end, button } of this.#spans) {
      const isNow = this.#player.time >= start && this.#player.time < end;
      if (isNow !== (button.getAttribute("aria-current") === "true")) button.setAttribute("aria-current", isNow);
    }
  }
}
