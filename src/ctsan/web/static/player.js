// What plays: the browser's own video, or, where it cannot play the file, the frames that were sampled.

const PLAY = "M8 5v14l11-7z";
const PAUSE = "M7 5h4v14H7zM13 5h4v14h-4z";
const STILL_SECONDS = 3;

export class Player extends EventTarget {
  #at = (id) => document.getElementById(id);
  #stage = this.#at("stage");
  #video = this.#at("video");
  #still = this.#at("still");
  #play = this.#at("play");
  #seek = this.#at("seek");
  #clock = this.#at("clock");
  #strip = this.#at("strip");
  #frames = null; // {times, urls} while the frames stand in for the video
  #moment = 0;
  #isPlaying = false;
  #last = 0;
  #length = 0;
  #address = null;

  constructor() {
    super();
    const toggle = () => (this.isPlaying ? this.pause() : this.play());
    this.#play.addEventListener("click", toggle);
    this.#video.addEventListener("click", toggle);
    this.#at("big-play").addEventListener("click", toggle);
    this.#seek.addEventListener("input", () => this.jump(Number(this.#seek.value)));
    this.#at("sound").addEventListener("click", () => this.#mute(!this.#video.muted));
    for (const event of ["play", "pause", "loadedmetadata"]) {
      this.#video.addEventListener(event, () => this.#tell());
    }
    this.#video.addEventListener("error", () => this.dispatchEvent(new Event("unplayable")));
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

  get duration() {
    if (this.#frames) return this.#length;
    return Number.isFinite(this.#video.duration) ? this.#video.duration : this.#length;
  }

  get isPlaying() {
    return this.#frames ? this.#isPlaying : !this.#video.paused;
  }

  // A file of this machine, or the address of a clip of the library.
  load(source, isPicture = false) {
    if (this.#address) URL.revokeObjectURL(this.#address);
    this.#address = source instanceof Blob ? URL.createObjectURL(source) : null;
    this.#frames = null;
    this.#length = this.#moment = 0;
    this.#strip.replaceChildren();
    this.#stage.style.setProperty("--ratio", 16 / 9);
    this.#video.hidden = isPicture;
    this.#still.hidden = !isPicture;
    this.#at("controls").hidden = isPicture;
    const address = this.#address ?? source;
    if (isPicture) {
      this.#video.removeAttribute("src");
      this.#still.src = address;
    } else {
      this.#video.src = address;
      this.#mute(true);
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
    }
    this.#tell();
  }

  // What the server knows of the clip: proportions, length, and the frames that were sampled.
  know({ width, height, duration }) {
    if (width && height) this.#stage.style.setProperty("--ratio", width / height);
    this.#length = duration ?? this.#length;
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

  standIn(times, urls) {
    this.#video.hidden = true;
    this.#still.hidden = false;
    const wasPlaying = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#frames = { times: times.map((time) => time - times[0]), urls };
    this.#length ||= STILL_SECONDS;
    this.#isPlaying = wasPlaying && urls.length > 1;
    this.#at("controls").hidden = urls.length < 2;
    this.#tell();
  }

  play() {
    if (this.#frames) this.#isPlaying = true;
    else this.#video.play().catch(() => this.#tell());
    this.#tell();
  }

  pause() {
    if (this.#frames) this.#isPlaying = false;
    else this.#video.pause();
    this.#tell();
  }

  jump(time) {
    if (this.#frames) this.#moment = time;
    else this.#video.currentTime = time;
  }

  #mute(isMuted) {
    this.#video.muted = isMuted;
    this.#at("sound").setAttribute("aria-pressed", String(!isMuted));
  }

  #tell() {
    const name = this.isPlaying ? "Pause" : "Play";
    this.#play.setAttribute("aria-label", name);
    this.#at("play-shape").setAttribute("d", this.isPlaying ? PAUSE : PLAY);
    this.#at("big-play").hidden = this.isPlaying || this.#at("controls").hidden;
    this.#at("sound").hidden = Boolean(this.#frames);
  }

  #step(seconds) {
    if (this.#frames && this.#isPlaying && this.#length) this.#moment = (this.#moment + seconds) % this.#length;
    if (this.#frames) {
      const { times, urls } = this.#frames;
      const next = times.findIndex((time) => time > this.#moment);
      const url = urls[(next < 0 ? urls.length : Math.max(1, next)) - 1];
      if (this.#still.getAttribute("src") !== url) this.#still.src = url;
    }
    const duration = this.duration;
    if (duration && document.activeElement !== this.#seek) this.#seek.value = this.time;
    if (duration && Number(this.#seek.max) !== duration) {
      this.#seek.max = duration;
      this.#seek.step = Math.max(0.01, duration / 500);
    }
    const text = `${clock(this.time)} / ${clock(duration)}`;
    if (this.#clock.value !== text) {
      this.#clock.value = text;
      this.#seek.setAttribute("aria-valuetext", `${clock(this.time)} of ${clock(duration)}`);
    }
    this.dispatchEvent(new Event("frame"));
  }
}

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds || 0));
  const minutes = Math.floor(whole / 60);
  const rest = String(whole % 60).padStart(2, "0");
  return minutes < 60
    ? `${minutes}:${rest}`
    : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}
