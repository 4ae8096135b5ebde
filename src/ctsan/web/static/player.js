// Plays the video; if the browser cannot, shows the sampled frames instead.

const PLAY = "M8 5v14l11-7z";
const PAUSE = "M7 5h4v14H7zM13 5h4v14h-4z";
const STILL_SECONDS = 3;

export class Player extends EventTarget {
  #byId = (id) => document.getElementById(id);
  #stage = this.#byId("stage");
  #video = this.#byId("video");
  #still = this.#byId("still");
  #play = this.#byId("play");
  #seek = this.#byId("seek");
  #clock = this.#byId("clock");
  #strip = this.#byId("strip");
  #frames = null; // { times, urls } while frames replace the video
  #moment = 0;
  #isPlaying = false;
  #last = 0;
  #length = 0;
  #objectUrl = null;

  constructor() {
    super();
    const toggle = () => (this.isPlaying ? this.pause() : this.play());
    this.#play.addEventListener("click", toggle);
    this.#video.addEventListener("click", toggle);
    this.#byId("big-play").addEventListener("click", toggle);
    this.#seek.addEventListener("input", () => this.jump(Number(this.#seek.value)));
    this.#byId("sound").addEventListener("click", () => this.#mute(!this.#video.muted));
    for (const event of ["play", "pause", "loadedmetadata"]) {
      this.#video.addEventListener(event, () => this.#updateControls());
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

  // `source` is a File, or the URL of a clip of the library.
  load(source, isPicture = false) {
    if (this.#objectUrl) URL.revokeObjectURL(this.#objectUrl);
    this.#objectUrl = source instanceof Blob ? URL.createObjectURL(source) : null;
    this.#frames = null;
    this.#length = this.#moment = 0;
    this.#strip.replaceChildren();
    this.#stage.style.setProperty("--ratio", 16 / 9);
    this.#video.hidden = isPicture;
    this.#still.hidden = !isPicture;
    this.#byId("controls").hidden = isPicture;
    const url = this.#objectUrl ?? source;
    if (isPicture) {
      this.#video.removeAttribute("src");
      this.#still.src = url;
    } else {
      this.#video.src = url;
      this.#mute(true);
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
    }
    this.#updateControls();
  }

  // Aspect ratio and length, as the server reports them.
  setInfo({ width, height, duration }) {
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

  // Show the sampled frames instead of the video.
  replaceVideo(times, urls) {
    this.#video.hidden = true;
    this.#still.hidden = false;
    const wasPlaying = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#frames = { times: times.map((time) => time - times[0]), urls };
    this.#length ||= STILL_SECONDS;
    this.#isPlaying = wasPlaying && urls.length > 1;
    this.#byId("controls").hidden = urls.length < 2;
    this.#updateControls();
  }

  play() {
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
    if (this.#frames) this.#moment = time;
    else this.#video.currentTime = time;
  }

  #mute(isMuted) {
    this.#video.muted = isMuted;
    this.#byId("sound").setAttribute("aria-pressed", String(!isMuted));
  }

  #updateControls() {
    const name = this.isPlaying ? "Pause" : "Play";
    this.#play.setAttribute("aria-label", name);
    this.#byId("play-shape").setAttribute("d", this.isPlaying ? PAUSE : PLAY);
    this.#byId("big-play").hidden = this.isPlaying || this.#byId("controls").hidden;
    this.#byId("sound").hidden = Boolean(this.#frames);
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
