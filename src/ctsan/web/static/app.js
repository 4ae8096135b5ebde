// The page: upload a clip, wait until the server has read it, and show the answers.

import { ask, upload, wait } from "./api.js";
import { Asking } from "./asking.js";
import { Describing } from "./describing.js";
import { announce, byId, showError, showNotice, showUnlessAborted } from "./page.js";
import { Player } from "./player.js";
import { Searching } from "./searching.js";
import { Shots } from "./shots.js";

const player = new Player();
const describing = new Describing(player);
const shots = new Shots(player);
const status = await ask("/api/status").catch(showUnlessAborted) ?? { tasks: [], limits: {} };
const asking = new Asking(status.tasks);
let current = { id: null, cancel: new AbortController(), isUnplayable: false };

if (status.library) {
  const searching = new Searching({ open: openMoment });
  byId("like").addEventListener("click", () => searching.search({ like: current.id }, "clips like this one"));
}
if (status.limits.bytes) {
  const { bytes, seconds } = status.limits;
  byId("drop-limits").textContent += `; up to ${Math.round(bytes / 2 ** 20)} MB and ${Math.round(seconds / 60)} minutes`;
}

// Upload a file.
async function openFile(file) {
  const limit = status.limits.bytes;
  if (limit && file.size > limit) {
    showError(`The file is larger than ${Math.round(limit / 2 ** 20)} MB. Cut it, or reduce its resolution.`);
    return;
  }
  const isPicture = file.type.startsWith("image/");
  await open(file, isPicture, (signal) =>
    upload(file, { signal, onProgress: (share) => showProgress("Sending", share) }),
  );
}

// Open a search hit and play from its start.
async function openMoment(hit) {
  const url = `/api/library/${hit.id}/video${hit.start ? `#t=${hit.start}` : ""}`;
  byId("found").hidden = true;
  await open(url, hit.is_picture, (signal) =>
    ask(`/api/library/${hit.id}/open`, { method: "POST", signal }),
  );
}

// `register` makes the clip known to the server and resolves to its state.
async function open(source, isPicture, register) {
  close();
  current = { id: null, cancel: new AbortController(), isUnplayable: false };
  const { signal } = current.cancel;
  byId("welcome").hidden = true;
  byId("clip").hidden = byId("another").hidden = byId("skeleton").hidden = false;
  player.load(source, isPicture);
  showProgress("Sending", 0);
  announce("The video is being read.");
  try {
    const { id } = await register(signal);
    current.id = id;
    const clip = await untilRead(id, signal);
    hideProgress();
    showFrames(id, clip);
    const description = status.tasks.includes("describe") ? await describing.show(id, signal) : null;
    byId("skeleton").hidden = true;
    asking.show(id, description);
    byId("like").hidden = !status.library;
    if (clip.shots) await shots.show(id, signal);
  } catch (error) {
    hideProgress();
    if (error.name === "AbortError") return;
    showError(error.message);
    if (byId("description").hidden) leave();
  }
}

async function untilRead(id, signal) {
  for (;;) {
    const clip = await ask(`/api/clips/${id}`, { signal });
    player.setInfo(clip);
    if (clip.state === "ready") return clip;
    if (clip.state === "failed") throw new Error(clip.error);
    if (clip.state === "cancelled") throw new DOMException("Cancelled", "AbortError");
    showProgress(clip.state === "waiting" ? "Waiting for a free worker" : "Reading the video", clip.progress);
    await wait(250, signal);
  }
}

function showFrames(id, clip) {
  const urls = clip.times.map((_, number) => `/api/clips/${id}/pictures/${number}`);
  player.showFrames(urls);
  current.replaceVideo = () => player.replaceVideo(clip.times, urls);
  if (current.isUnplayable) current.replaceVideo();
}

player.addEventListener("unplayable", () => {
  current.isUnplayable = true;
  current.replaceVideo?.();
});

function showProgress(text, share) {
  byId("progress-box").hidden = false;
  byId("progress-text").textContent = text;
  byId("progress").value = share;
}

function hideProgress() {
  byId("progress-box").hidden = true;
}

// Abort all requests and remove the clip from the server.
function close() {
  current.cancel.abort();
  if (current.id) ask(`/api/clips/${current.id}`, { method: "DELETE" }).catch(() => {});
  current.id = null;
  showError("");
  showNotice("");
  hideProgress();
  byId("like").hidden = true;
  describing.clear();
  asking.clear();
  shots.clear();
}

function leave() {
  player.pause();
  byId("clip").hidden = byId("another").hidden = true;
  byId("welcome").hidden = false;
}

byId("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (file) openFile(file);
});
byId("another").addEventListener("click", () => {
  close();
  leave();
  byId("file").focus();
});
byId("cancel").addEventListener("click", () => {
  close();
  leave();
  announce("Cancelled.");
  byId("file").focus();
});
byId("error-close").addEventListener("click", () => showError(""));

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
