// A moment of the library as a card: its thumbnail, which moves when pointed at, its caption and its folder.

import { address } from "./address.js";
import { element, prefersStill, spanText } from "./page.js";

const STRIP_CELLS = 6;
const STRIP_MILLISECONDS = 450;
const LIKE = "M4 5h9v9H4zM11 17v2h9v-9h-2.5";

const moments = new Map(); // by id: what is known without asking

export const knownMoment = (id) => moments.get(id);

// `search` is what led here, for the way back; `tab` the tab that the moment opens with.
export function card(hit, { search = null, tab = null, hasLike = true } = {}) {
  moments.set(hit.id, hit);
  const picture = new Image();
  picture.alt = "";
  picture.loading = "lazy";
  const tile = element("span", { className: "tile" }, picture, element("span", { className: "time" }, spanText(hit)));
  picture.addEventListener("load", () => tile.classList.add("loaded"));
  picture.addEventListener("error", () => tile.classList.add("loaded", "broken"));
  picture.src = `/api/library/${hit.id}/thumbnail`;
  const text = momentText(hit);
  const about = element(
    "span",
    { className: "about" },
    element("span", { className: "says" }, text ?? hit.name),
    element("span", { className: "file" }, text ? `${hit.name} · ${hit.folder}` : hit.folder),
  );
  const href = address({ ...search, moment: hit.id, tab });
  const open = element("a", { className: "open", href }, tile, about);
  open.dataset.moment = hit.id;
  if (!hit.is_picture) moveWhenPointedAt(open, tile, hit);
  const item = element("li", { className: "card result" }, open);
  if (hasLike) item.append(likeLink(hit));
  return item;
}

// The caption, or the first concept words of a library without captions.
export function momentText({ caption, concepts }) {
  return caption || concepts.slice(0, 3).map(({ word }) => word).join(", ") || null;
}

// Tiles that shimmer while a search runs.
export function placeholders(number) {
  return Array.from({ length: number }, () =>
    element(
      "li",
      { className: "card result placeholder", ariaHidden: "true" },
      element("span", { className: "tile" }),
      element("span", { className: "about" }, element("i"), element("i")),
    ),
  );
}

function likeLink(hit) {
  const link = element("a", { className: "icon like", href: address({ like: hit.id }), title: "More like this" });
  link.setAttribute("aria-label", `More like ${hit.name}, ${spanText(hit)}`);
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("viewBox", "0 0 24 24");
  icon.setAttribute("width", "18");
  icon.setAttribute("height", "18");
  icon.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({ d: LIKE, fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linejoin": "round", "stroke-linecap": "round" })) {
    path.setAttribute(name, value);
  }
  icon.append(path);
  link.append(icon);
  return link;
}

// Chromium plays some matroska files although it does not say so.
export function mayPlay(mediaType) {
  return mediaType === "video/x-matroska" || document.createElement("video").canPlayType(mediaType) !== "";
}

function moveWhenPointedAt(place, tile, hit) {
  let stop = null;
  const begin = () => {
    if (stop || prefersStill()) return;
    stop = mayPlay(hit.media_type) ? playVideo(tile, hit, () => { stop = playStrip(tile, hit); }) : playStrip(tile, hit);
  };
  const end = () => {
    stop?.();
    stop = null;
  };
  place.addEventListener("pointerenter", begin);
  place.addEventListener("focus", begin);
  place.addEventListener("pointerleave", end);
  place.addEventListener("blur", end);
}

function playVideo(tile, { id, start, end }, onError) {
  const video = element("video", { muted: true, playsInline: true, tabIndex: -1, src: `/api/library/${id}/video#t=${start}` });
  let isOver = false;
  video.addEventListener("timeupdate", () => {
    if (end && video.currentTime > end) video.currentTime = start;
  });
  video.addEventListener("playing", () => video.classList.add("on"));
  video.addEventListener("error", () => {
    video.remove();
    if (!isOver) onError();
    isOver = true;
  });
  tile.querySelector("img").after(video);
  video.play().catch(() => {});
  return () => {
    isOver = true;
    video.removeAttribute("src"); // ends the request
    video.load();
    video.remove();
  };
}

// Frames of a file that the browser cannot play.
function playStrip(tile, { id }) {
  const strip = element("img", { className: "frames", alt: "" });
  let cell = 0;
  let timer = null;
  strip.addEventListener("load", () => {
    strip.classList.add("on");
    timer = setInterval(() => {
      cell = (cell + 1) % STRIP_CELLS;
      strip.style.setProperty("--cell", cell);
    }, STRIP_MILLISECONDS);
  });
  strip.addEventListener("error", () => strip.remove());
  strip.src = `/api/library/${id}/strip`;
  tile.querySelector("img").after(strip);
  return () => {
    clearInterval(timer);
    strip.remove();
  };
}
