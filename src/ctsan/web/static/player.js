// Plays a video, or a moment of one; if the browser cannot, shows the sampled frames instead.

import { byId, clock, prefersStill } from "./page.js";

const PLAY = "M8 5v14l11-7z";
const PAUSE = "M7 5h4v14H7zM13 5h4v14h-4z";
const STILL_SECONDS = 3;
const SLACK = 0.04; // seconds: the last frame of a moment, not the first of the next

export class Player extends EventTarget {
  #stage = byId("stage");
  #video = byId("video");
  #still = byId("still");
  #play = byId("play");
  #seek = byId("seek");
  #clock = byId("clock");
  #strip = byId("strip");
  #frames = null; // { times, urls } while frames replace the video
  #moment = 0; // time of the frames
  #isPlaying = false; // of the frames
  #last = 0;
  #start = 0;
  #length = 0; // as the server reports it
  #span = null; // { start, end } of a moment: nothing outside of it is played
  #stopAt = null; // where playing a shot ends
  #objectUrl = null;

  constructor() {
    super();
    this.#play.addEventListener("click", () => this.toggle());
    this.#video.addEventListener("click", () => this.toggle());
    byId("big-play").addEventListener("click", () => this.toggle());
    this.#seek.addEventListener("input", () => {
      this.#stopAt = null;
      this.jump(Number(this.#seek.value));
    });
    byId("sound").addEventListener("click", () => this.toggleSound());
    for (const event of ["play", "pause", "loadedmetadata"]) {
      this.#video.addEventListener(event, () => this.#updateControls());
    }
    this.#video.addEventListener("loadedmetadata", () => {
      if (this.#span) this.#video.currentTime = this.#span.start;
    });
    this.#video.addEventListener("error", () => this.dispatchEvent(new Event("unplayable")));
    this.#still.addEventListener("error", () => {
      if (!this.#frames) this.dispatchEvent(new Event("unplayable"));
    });
    const tick = (now) => {
      this.#step((now - this.#last) / 1000);
      this.#last = now;
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  get time() {
    return this.#frames ? this.#moment : this.#video.currentTime;
  }

  get start() {
    return this.#span?.start ?? this.#start;
  }

  get end() {
    if (this.#span) return this.#span.end;
    if (!this.#frames && Number.isFinite(this.#video.duration)) return this.#video.duration;
    return this.#start + this.#length;
  }

  get isPlaying() {
    return this.#frames ? this.#isPlaying : !this.#video.paused;
  }

  get hasControls() {
    return !byId("controls").hidden;
  }

  // `source` is a File, the URL of a file of the library, or null if only frames are there.
  // `span` is the part of a film that is shown; `poster` a picture to show if there is no video.
  load(source, { isPicture = false, span = null, poster = null } = {}) {
    this.unload();
    this.#objectUrl = source instanceof Blob ? URL.createObjectURL(source) : null;
    this.#span = span && span.end > span.start ? span : null;
    const hasVideo = !isPicture && source !== null;
    this.#video.hidden = !hasVideo;
    this.#still.hidden = hasVideo || (!poster && !isPicture);
    byId("controls").hidden = isPicture;
    const url = this.#objectUrl ?? source;
    if (hasVideo) {
      this.#video.src = url;
      this.#mute(true);
      if (!prefersStill()) this.play();
    } else if (isPicture && url) this.#still.src = url;
    else if (poster) this.#still.src = poster;
    this.#updateControls();
  }

  unload() {
    if (this.#objectUrl) URL.revokeObjectURL(this.#objectUrl);
    this.#objectUrl = this.#frames = this.#span = this.#stopAt = null;
    this.#start = this.#length = this.#moment = 0;
    this.#isPlaying = false;
    this.#video.pause();
    if (this.#video.hasAttribute("src")) {
      this.#video.removeAttribute("src");
      this.#video.load();
    }
    this.#still.removeAttribute("src");
    this.#strip.replaceChildren();
    this.#stage.style.setProperty("--ratio", 16 / 9);
  }

  // Aspect ratio, start and length, as the server reports them.
  setInfo({ width, height, start, duration }) {
    if (width && height) this.#stage.style.setProperty("--ratio", width / height);
    this.#start = start ?? 0;
    this.#length = duration ?? this.#length;
    this.#video.loop = !this.#span;
  }

  showFrames(urls) {
    const shown = Math.min(urls.length, 16);
    this.#strip.replaceChildren(
      ...Array.from({ length: shown }, (_, place) => {
        const image = new Image();
        image.src = urls[Math.floor((place * urls.length) / shown)];
        image.alt = "";
        return image;
      }),
    );
  }

  // Show the sampled frames instead of the video.
  replaceVideo(times, urls) {
    this.#video.hidden = true;
    this.#still.hidden = false;
    this.#frames = { times: times.map((time) => time - times[0] + this.start), urls };
    this.#moment = this.start;
    this.#length ||= STILL_SECONDS;
    this.#isPlaying = !prefersStill() && urls.length > 1;
    byId("controls").hidden = urls.length < 2;
    this.#updateControls();
  }

  // A picture that the browser cannot show: that of the server instead.
  replacePicture(url) {
    this.#frames = { times: [0], urls: [url] };
    this.#still.hidden = false;
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  play() {
    const end = this.#stopAt ?? this.#span?.end;
    if (end && this.time >= end - 2 * SLACK) {
      this.#stopAt = null;
      if (this.#span) this.jump(this.#span.start);
    }
    if (this.#frames) this.#isPlaying = true;
    else this.#video.play().catch(() => this.#updateControls());
    this.#updateControls();
  }

  pause() {
    if (this.#frames) this.#isPlaying = false;
    else this.#video.pause();
    this.#updateControls();
  }

  jump(time) {
    const inside = Math.min(Math.max(time, this.start), this.#span ? this.#span.end - SLACK : time);
    if (this.#frames) this.#moment = inside;
    else this.#video.currentTime = inside;
  }

  // Relative, for the arrow keys: finer in a short clip.
  skip(direction) {
    this.#stopAt = null;
    const end = this.end || 1;
    this.jump(Math.min(end - SLACK, this.time + direction * (end - this.start > 60 ? 5 : 1)));
  }

  // Play a part of the video, and stop at its end.
  playPart(start, end) {
    this.jump(start + 0.01);
    this.#stopAt = end;
    this.play();
  }

  toggleSound() {
    this.#mute(!this.#video.muted);
  }

  #mute(isMuted) {
    this.#video.muted = isMuted;
    byId("sound").setAttribute("aria-pressed", String(!isMuted));
  }

  #updateControls() {
    const name = this.isPlaying ? "Pause" : "Play";
    this.#play.setAttribute("aria-label", name);
    byId("play-shape").setAttribute("d", this.isPlaying ? PAUSE : PLAY);
    byId("big-play").hidden = this.isPlaying || !this.hasControls;
    byId("sound").classList.toggle("off", Boolean(this.#frames));
  }

  #step(seconds) {
    if (this.#frames) this.#stepFrames(seconds);
    const end = this.#stopAt ?? this.#span?.end;
    if (end && this.isPlaying && this.time >= end - SLACK) {
      this.pause();
      this.jump(end - SLACK);
    }
    if (this.end && document.activeElement !== this.#seek) this.#seek.value = this.time;
    if (this.end && (Number(this.#seek.max) !== this.end || Number(this.#seek.min) !== this.start)) {
      this.#seek.min = this.start;
      this.#seek.max = this.end;
      this.#seek.step = Math.max(0.01, (this.end - this.start) / 500);
    }
    const text = `${clock(this.time)} / ${clock(this.end)}`;
    if (this.#clock.value !== text) {
      this.#clock.value = text;
      this.#seek.setAttribute("aria-valuetext", `${clock(this.time)} of ${clock(this.end)}`);
    }
    this.dispatchEvent(new Event("frame"));
  }

  #stepFrames(seconds) {
    const { times, urls } = this.#frames;
    if (this.#isPlaying && this.#length) {
      this.#moment += seconds;
      const isOver = this.#moment >= this.start + this.#length;
      if (isOver && !this.#span) this.#moment = this.start;
    }
    const next = times.findIndex((time) => time > this.#moment);
    const url = urls[(next < 0 ? urls.length : Math.max(1, next)) - 1];
    if (this.#still.getAttribute("src") !== url) this.#still.src = url;
  }
}
