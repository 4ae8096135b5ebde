// Keys that work everywhere in the page; fields and buttons keep theirs.

import { byId } from "./page.js";

const TYPING = "input:not([type=range]), textarea, select, [contenteditable]";
const PRESSED = "button, a, summary, [role=tab]";

export function listenToKeys(clip) {
  byId("keys-open").addEventListener("click", () => byId("keys").showModal());
  byId("keys-close").addEventListener("click", () => byId("keys").close());
  byId("keys").addEventListener("click", (event) => {
    if (event.target === byId("keys")) byId("keys").close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
    const { target, key } = event;
    if (key === "Escape") return void (leave(target, clip) && event.preventDefault());
    if (target.matches(TYPING)) return;
    if (act(key, target, clip)) event.preventDefault();
  });
}

// Whether the key was meant for the page.
function act(key, target, clip) {
  const isClip = !byId("clip").hidden;
  if (key === "?") byId("keys").showModal();
  else if (key === "/" && !byId("search").classList.contains("off")) byId("query").select();
  else if (key === " " && isClip && !target.matches(PRESSED) && clip.player.hasControls) clip.player.toggle();
  else if (key.toLowerCase() === "m" && isClip && clip.player.hasControls) clip.player.toggleSound();
  else if (isClip && !target.matches("[type=range], [role=tab]")) return moveInClip(key, clip);
  else if (!isClip) return moveAmongCards(key, target);
  else return false;
  return true;
}

function moveInClip(key, clip) {
  if ((key === "ArrowLeft" || key === "ArrowRight") && clip.player.hasControls) clip.player.skip(key === "ArrowLeft" ? -1 : 1);
  else if ((key === "ArrowUp" || key === "ArrowDown") && clip.shots.length) clip.shots.step(key === "ArrowUp" ? -1 : 1);
  else return false;
  return true;
}

function moveAmongCards(key, target) {
  const list = [...document.querySelectorAll(".view:not([hidden]) .results .open")];
  if (!list.length || (target !== document.body && !target.closest(".result, h1"))) return false;
  const tops = list.map((link) => link.getBoundingClientRect().top);
  const columns = Math.max(1, tops.findIndex((top) => top > tops[0] + 1));
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
  const at = list.indexOf(target.closest(".result")?.querySelector(".open"));
  if (step === undefined || (at < 0 && step < 0)) return false;
  const next = list[at < 0 ? 0 : at + step];
  next?.focus();
  return Boolean(next);
}

// Escape: hide what lies over the video, leave the field, then go back to the results.
function leave(target, clip) {
  if (!byId("message").hidden) byId("message-close").click();
  else if (target.matches(TYPING)) target.blur();
  else if (byId("clip").hidden) return false;
  else if (!clip.hideTraces()) byId("back").click();
  return true;
}
