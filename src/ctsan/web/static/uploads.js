// Files that were dropped or chosen. They are sent and read one after another.

import { address } from "./address.js";
import { ask, upload, wait } from "./api.js";
import { byId, element } from "./page.js";

const VIDEO_NAMES = /\.(mp4|m4v|mov|webm|mkv|avi|mpe?g|ogv|3gp|wmv|flv|mts|m2ts|ts|gif|jpe?g|png|webp|avif|bmp|tiff?|heic|heif)$/i;
const STATES = { waiting: "waiting", sending: "sending", reading: "reading", ready: "", failed: "not readable", cancelled: "cancelled" };

// Whether it may be a video or a picture; the server decides by the content.
export function mayBeClip({ type, name }) {
  return /^(video|image)\//.test(type) || VIDEO_NAMES.test(name);
}

export class Uploads extends EventTarget {
  #uploads = [];
  #isRunning = false;
  #remembered = JSON.parse(sessionStorage.getItem("clips") ?? "{}"); // names of clips, for a reload

  // Queue files; returns them as uploads.
  add(files) {
    const added = files.map((file, place) => ({
      key: `upload-${this.#uploads.length + place + 1}`,
      id: null,
      file,
      name: file.name,
      isPicture: file.type.startsWith("image/"),
      state: "waiting",
      progress: 0,
      error: null,
      cancel: new AbortController(),
    }));
    this.#uploads.push(...added);
    this.#run();
    return added;
  }

  // By the key that it has until it is sent, or by its id.
  find(key) {
    return this.#uploads.find((each) => each.key === key || each.id === key);
  }

  nameOf(id) {
    return this.find(id)?.name ?? this.#remembered[id]?.name;
  }

  isPicture(id) {
    return this.find(id)?.isPicture ?? Boolean(this.#remembered[id]?.isPicture);
  }

  // Stop it, and have the server forget it.
  remove(key) {
    const found = this.find(key);
    if (!found) return;
    found.cancel.abort();
    found.state = "cancelled";
    if (found.id) ask(`/api/clips/${found.id}`, { method: "DELETE" }).catch(() => {});
    this.#uploads = this.#uploads.filter((each) => each !== found);
    this.#changed();
  }

  // Resolves to the id once the file is sent.
  async sent(item, signal, onProgress) {
    for (;;) {
      if (item.id) return item.id;
      if (item.state === "failed") throw new Error(item.error);
      if (item.state === "cancelled") throw new DOMException("Cancelled", "AbortError");
      onProgress(item);
      await wait(80, signal);
    }
  }

  // Chips of all files, if there are several.
  showQueue(current) {
    byId("queue").hidden = this.#uploads.length < 2;
    byId("queue-list").replaceChildren(
      ...this.#uploads.map((item) => {
        const link = element("a", { className: "chip", href: address({ clip: item.id ?? item.key }) }, item.name);
        const state = STATES[item.state];
        if (state) link.append(element("small", {}, state));
        if (item.key === current || (item.id && item.id === current)) link.setAttribute("aria-current", "page");
        return element("li", {}, link);
      }),
    );
  }

  async #run() {
    if (this.#isRunning) return;
    this.#isRunning = true;
    this.#changed();
    for (let next; (next = this.#uploads.find(({ state }) => state === "waiting")); ) {
      try {
        await this.#process(next);
      } catch (error) {
        if (next.state !== "cancelled") next.state = error.name === "AbortError" ? "cancelled" : "failed";
        next.error = error.message;
      }
      this.#changed();
    }
    this.#isRunning = false;
  }

  async #process(item) {
    const { signal } = item.cancel;
    item.state = "sending";
    this.#changed();
    const onProgress = (share) => {
      item.progress = share;
    };
    const { id } = await upload(item.file, { signal, onProgress });
    item.id = id;
    item.state = "reading";
    this.#remembered[id] = { name: item.name, isPicture: item.isPicture };
    sessionStorage.setItem("clips", JSON.stringify(this.#remembered));
    this.#changed();
    for (;;) {
      const { state, error } = await ask(`/api/clips/${id}`, { signal });
      if (state === "failed") throw new Error(error);
      if (state === "ready" || state === "cancelled") {
        item.state = state;
        return;
      }
      await wait(300, signal);
    }
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
