// One clip: a moment of the library, or an upload. The player, and what the models say.

import { address, go, readAddress, rename, searchOf } from "./address.js";
import { ask, wait } from "./api.js";
import { knownMoment, mayPlay } from "./cards.js";
import { DescriptionView } from "./description.js";
import { announce, byId, showError, spanText } from "./page.js";
import { Player } from "./player.js";
import { Questions } from "./questions.js";
import { Shots } from "./shots.js";
import { Tabs } from "./tabs.js";

const NO_VIDEO = "The video itself was deleted once it was read, so these are the frames that were looked at.";
const NO_PLAYER = "This browser cannot play the file, so these are the frames that were looked at.";
const NO_PICTURE = "This browser cannot show the file, so this is the picture that was looked at.";
const FORGOTTEN =
  "An uploaded clip is forgotten after an hour without a question, and when the server stops. Open the file again.";

export class ClipView {
  #player = new Player();
  #description = new DescriptionView(this.#player);
  #shots = new Shots(this.#player, { choose: (number) => go({ ...readAddress(), shot: number + 1 }) });
  #questions;
  #tabs = new Tabs({ choose: (name) => go({ ...readAddress(), tab: name }, { isSame: true }) });
  #status;
  #uploads;
  #searchTitle; // title of a search
  #showGone;
  #current = null; // { key, id, cancel, isFilm, isMoment, replaceVideo, isUnplayable }

  constructor({ status, uploads, searchTitle, showGone }) {
    this.#status = status;
    this.#uploads = uploads;
    this.#searchTitle = searchTitle;
    this.#showGone = showGone;
    this.#questions = new Questions(status.tasks);
    this.#player.addEventListener("unplayable", () => {
      if (!this.#current) return;
      this.#current.isUnplayable = true;
      this.#current.replaceVideo?.();
    });
    byId("cancel").addEventListener("click", () => {
      if (!this.#current.isMoment) this.#uploads.remove(this.#current.key);
      go({});
      announce("Cancelled.");
    });
    byId("like").addEventListener("click", () => go({ like: this.#current.isMoment ? this.#current.key : this.#current.id }));
    byId("vtt").addEventListener("click", () => announce("The descriptions are downloaded."));
  }

  get player() {
    return this.#player;
  }

  get shots() {
    return this.#shots;
  }

  hideTraces() {
    return this.#description.hide();
  }

  // Show the clip that the address names; if it is shown already, only its tab and shot change.
  show(state) {
    const key = state.moment ?? this.#uploads.find(state.clip)?.key ?? state.clip;
    const isNew = this.#current?.key !== key;
    if (isNew) {
      this.close();
      this.#current = { key, id: null, cancel: new AbortController(), isFilm: false, isMoment: Boolean(state.moment) };
    }
    this.#showBack(state);
    this.#showTabs();
    if (isNew) this.#open(state.moment ? this.#moment(state.moment) : this.#upload(key));
    else if (state.shot) this.#shots.play(state.shot - 1);
    return isNew;
  }

  // Leave the clip. An upload goes on in the queue.
  close() {
    this.#current?.cancel.abort();
    this.#current = null;
    this.#player.unload();
    this.#description.clear();
    this.#questions.clear();
    this.#shots.clear();
    this.#hideProgress();
    byId("like").hidden = byId("frames-note").hidden = true;
  }

  // Sources of clips: each loads the player, and resolves to the clip's id on the server.

  async #moment(id) {
    const { signal } = this.#current.cancel;
    const hit = knownMoment(id) ?? (await ask(`/api/library/${id}`, { signal }));
    this.#showTitle(hit.name, spanText(hit), hit.folder);
    const url = `/api/library/${id}/video${hit.start ? `#t=${hit.start}` : ""}`;
    const canTry = hit.is_picture || mayPlay(hit.media_type);
    this.#player.load(canTry ? url : null, { isPicture: hit.is_picture, span: hit, poster: `/api/library/${id}/thumbnail` });
    if (!canTry) this.#current.isUnplayable = true;
    if (hit.caption) this.#description.showCaption(hit.caption);
    this.#showFilm(id, signal).catch(showError);
    this.#showProgress("Looking at the moment", 0);
    return (await ask(`/api/library/${id}/open`, { method: "POST", signal })).id;
  }

  async #upload(key) {
    const { signal } = this.#current.cancel;
    const item = this.#uploads.find(key);
    this.#showTitle(this.#uploads.nameOf(key) ?? "Uploaded clip", "", "");
    if (!item && key.startsWith("upload-")) throw Object.assign(new Error(FORGOTTEN), { code: "not_found" });
    const isPicture = this.#uploads.isPicture(key);
    this.#player.load(item?.file ?? null, { isPicture });
    if (!item) {
      this.#current.isUnplayable = true;
      return key;
    }
    const id = await this.#uploads.sent(item, signal, ({ state, progress }) =>
      this.#showProgress(state === "waiting" ? "Waiting for its turn" : "Sending", progress),
    );
    if (readAddress().clip === key) rename({ ...readAddress(), clip: id });
    return id;
  }

  async #open(source) {
    const current = this.#current;
    const { signal } = current.cancel;
    byId("skeleton").hidden = !byId("description").hidden;
    try {
      current.id = await source;
      const clip = await this.#untilRead(current.id, signal);
      this.#hideProgress();
      this.#showFrames(clip);
      if (!current.isMoment) this.#showUploadShots(clip, signal);
      const canDescribe = this.#status.tasks.includes("describe");
      const description = canDescribe ? await this.#description.show(current.id, signal) : null;
      byId("skeleton").hidden = true;
      this.#questions.show(current.id, description);
      byId("like").hidden = !this.#status.library || current.key.startsWith("example-");
    } catch (error) {
      if (this.#current !== current || error.name === "AbortError") return;
      this.#hideProgress();
      this.#fail(error);
    }
  }

  #fail(error) {
    const { isMoment, key } = this.#current;
    const isGone = ["not_found", "gone"].includes(error.code);
    this.close();
    if (isGone && !isMoment) this.#showGone("This clip is no longer here", FORGOTTEN);
    else if (isGone) this.#showGone("This moment is no longer here", error.message);
    else {
      this.#uploads.remove(key);
      go({}, { isSame: true });
      showError(error);
    }
  }

  async #untilRead(id, signal) {
    for (;;) {
      const clip = await ask(`/api/clips/${id}`, { signal });
      this.#player.setInfo(clip);
      if (clip.state === "ready") return clip;
      if (clip.state === "failed") throw new Error(clip.error);
      if (clip.state === "cancelled") throw new DOMException("Cancelled", "AbortError");
      this.#showProgress(clip.state === "waiting" ? "Waiting for a free worker" : "Reading the video", clip.progress);
      await wait(250, signal);
    }
  }

  #showFrames({ id, times, duration, cut_off }) {
    const current = this.#current;
    const urls = times.map((_, number) => `/api/clips/${id}/pictures/${number}`);
    if (duration) this.#player.showFrames(urls);
    const isHere = current.isMoment || this.#uploads.find(current.key);
    const cut = cut_off === null ? "" : `The file is cut off: ${Math.round(duration)} of ${Math.round(cut_off)} seconds could be read. `;
    const note = (text) => {
      byId("frames-note").textContent = cut + text;
      byId("frames-note").hidden = !(cut + text);
    };
    note("");
    current.replaceVideo = () => {
      if (duration) this.#player.replaceVideo(times, urls);
      else this.#player.replacePicture(`/api/clips/${id}/poster`);
      note(!isHere ? NO_VIDEO : duration ? NO_PLAYER : NO_PICTURE);
    };
    if (current.isUnplayable) current.replaceVideo();
  }

  // The other shots of a film of the library.
  async #showFilm(id, signal) {
    const shots = await ask(`/api/library/${id}/shots`, { signal });
    if (shots.length < 2) return;
    this.#current.isFilm = true;
    this.#shots.showMoments(shots, { current: id, search: searchOf(readAddress()) });
    if (shots.some(({ caption }) => caption)) this.#shots.offer(`/api/library/${id}/shots.vtt`);
    this.#showTabs();
  }

  #showUploadShots({ id, shots }, signal) {
    if (!shots) return;
    this.#current.isFilm = true;
    this.#showTabs();
    const wanted = readAddress().shot;
    this.#shots
      .follow(id, signal)
      .then(() => wanted && this.#shots.play(wanted - 1))
      .catch(showError);
  }

  // Of a long film the shots come first. A moment of a film opens with its own description.
  #showTabs() {
    const { isFilm, isMoment } = this.#current;
    const { tasks } = this.#status;
    const titles = {};
    if (isFilm) titles.shots = "Shot by shot";
    if (tasks.includes("describe")) titles.description = isFilm ? (isMoment ? "This shot" : "The whole film") : "Description";
    if (tasks.includes("fill") || tasks.includes("choose")) titles.questions = "Questions";
    byId("description-title").textContent = isFilm ? (isMoment ? "It says of this shot" : "It says of the whole film") : "It says";
    const { tab } = readAddress();
    const first = Object.keys(titles).find((name) => !isMoment || name !== "shots");
    const selected = tab in titles ? tab : first;
    this.#tabs.show(titles, selected);
    byId("clip").dataset.tab = selected;
    this.#shots.reveal();
  }

  #showTitle(name, range, folder) {
    byId("title").textContent = name;
    byId("range").textContent = range === "picture" ? "" : range;
    byId("place").textContent = folder;
    document.title = [name, byId("range").textContent, "ctsan"].filter(Boolean).join(" · ");
  }

  #showBack(state) {
    const search = searchOf(state);
    byId("back").href = address(search ?? {});
    byId("back").textContent = search ? `Results for ${this.#searchTitle(search)}` : this.#status.library ? "Library" : "Start";
  }

  #showProgress(text, share) {
    byId("progress-box").hidden = false;
    byId("progress-text").textContent = text;
    byId("progress").value = share;
  }

  #hideProgress() {
    byId("progress-box").hidden = true;
  }
}
