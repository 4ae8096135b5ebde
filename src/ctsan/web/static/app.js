// The page: a clip comes in, is read by the server, and everything about it is shown.

import { ask, upload, wait } from "./api.js";
import { Asking } from "./asking.js";
import { Describing } from "./describing.js";
import { at, say, showError, showNotice, showProblem } from "./page.js";
import { Player } from "./player.js";
import { Searching } from "./searching.js";
import { Shots } from "./shots.js";

const player = new Player();
const describing = new Describing(player);
const shots = new Shots(player);
const status = await ask("/api/status").catch(showProblem) ?? { tasks: [], limits: {} };
const asking = new Asking(status.tasks);
let current = { id: null, cancel: new AbortController(), isUnplayable: false };

if (status.library) {
  const searching = new Searching({ open: openMoment });
  at("like").addEventListener("click", () => searching.search({ like: current.id }, "clips like this one"));
}
if (status.limits.bytes) {
  const { bytes, seconds } = status.limits;
  at("drop-limits").textContent += `; up to ${Math.round(bytes / 2 ** 20)} MB and ${Math.round(seconds / 60)} minutes`;
}

// A file from this machine.
async function openFile(file) {
  const limit = status.limits.bytes;
  if (limit && file.size > limit) {
    showError(`The file is larger than ${Math.round(limit / 2 ** 20)} MB. Cut it, or make its pictures smaller.`);
    return;
  }
  const isPicture = file.type.startsWith("image/");
  await open(file, isPicture, (signal) =>
    upload(file, { signal, onProgress: (share) => showProgress("Sending", share) }),
  );
}

// A moment of the library: the clip plays from there.
async function openMoment(hit) {
  const address = `/api/library/${hit.id}/video${hit.start ? `#t=${hit.start}` : ""}`;
  at("found").hidden = true;
  await open(address, hit.is_picture, (signal) =>
    ask(`/api/library/${hit.id}/open`, { method: "POST", signal }),
  );
}

async function open(source, isPicture, give) {
  close();
  current = { id: null, cancel: new AbortController(), isUnplayable: false };
  const { signal } = current.cancel;
  at("welcome").hidden = true;
  at("clip").hidden = at("another").hidden = at("skeleton").hidden = false;
  player.load(source, isPicture);
  showProgress("Sending", 0);
  say("The video is being read.");
  try {
    const { id } = await give(signal);
    current.id = id;
    const clip = await reading(id, signal);
    hideProgress();
    showFrames(id, clip);
    const description = status.tasks.includes("describe") ? await describing.show(id, signal) : null;
    at("skeleton").hidden = true;
    asking.show(id, description);
    at("like").hidden = !status.library;
    if (clip.shots) await shots.show(id, signal);
  } catch (error) {
    hideProgress();
    if (error.name === "AbortError") return;
    showError(error.message);
    if (at("description").hidden) leave();
  }
}

async function reading(id, signal) {
  for (;;) {
    const clip = await ask(`/api/clips/${id}`, { signal });
    player.know(clip);
    if (clip.state === "ready") return clip;
    if (clip.state === "failed") throw new Error(clip.error);
    if (clip.state === "cancelled") throw new DOMException("Cancelled", "AbortError");
    showProgress(clip.state === "waiting" ? "Waiting for a free reader" : "Looking at the video", clip.progress);
    await wait(250, signal);
  }
}

function showFrames(id, clip) {
  const urls = clip.times.map((_, number) => `/api/clips/${id}/pictures/${number}`);
  player.showFrames(urls);
  current.standIn = () => player.standIn(clip.times, urls);
  if (current.isUnplayable) current.standIn();
}

player.addEventListener("unplayable", () => {
  current.isUnplayable = true;
  current.standIn?.();
});

function showProgress(text, share) {
  at("progress-box").hidden = false;
  at("progress-text").textContent = text;
  at("progress").value = share;
}

function hideProgress() {
  at("progress-box").hidden = true;
}

// Whatever is under way is stopped, here and in the server, which then forgets the clip.
function close() {
  current.cancel.abort();
  if (current.id) ask(`/api/clips/${current.id}`, { method: "DELETE" }).catch(() => {});
  current.id = null;
  showError("");
  showNotice("");
  hideProgress();
  at("like").hidden = true;
  describing.clear();
  asking.clear();
  shots.clear();
}

function leave() {
  player.pause();
  at("clip").hidden = at("another").hidden = true;
  at("welcome").hidden = false;
}

at("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (file) openFile(file);
});
at("another").addEventListener("click", () => {
  close();
  leave();
  at("file").focus();
});
at("cancel").addEventListener("click", () => {
  close();
  leave();
  say("Cancelled.");
  at("file").focus();
});
at("error-close").addEventListener("click", () => showError(""));

for (const event of ["dragenter", "dragover"]) {
  document.addEventListener(event, (dragged) => {
    dragged.preventDefault();
    document.body.classList.add("dragging");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dragging");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  const files = [...event.dataTransfer.files];
  const file = files.find(({ type }) => /^(video|image)\//.test(type)) ?? files[0];
  if (!file) return;
  openFile(file);
  if (files.length > 1) {
    const others = files.length === 2 ? "The other file was" : `The other ${files.length - 1} files were`;
    showNotice(`${others} not taken: one video is shown at a time, and this is “${file.name}”.`);
  }
});
addEventListener("pagehide", () => {
  if (current.id) fetch(`/api/clips/${current.id}`, { method: "DELETE", keepalive: true });
});
document.documentElement.dataset.ready = "true";
