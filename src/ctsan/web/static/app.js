// The page: shows the state that its address names.

import { go, onAddress, readAddress } from "./address.js";
import { ask } from "./api.js";
import { ClipView } from "./clip.js";
import { listenToKeys } from "./keys.js";
import { announce, byId, count, showError, showMessage } from "./page.js";
import { SearchView } from "./search.js";
import { StartView } from "./start.js";
import { mayBeClip, Uploads } from "./uploads.js";

const TITLES = { start: "start-title", found: "found-title", clip: "title", gone: "gone-title" };

const status = (await ask("/api/status").catch(showError)) ?? { tasks: [], limits: {} };
const uploads = new Uploads();
const start = new StartView(status.limits);
const search = status.library ? new SearchView({ nameOf: (id) => uploads.nameOf(id) }) : null;
const clip = new ClipView({
  status,
  uploads,
  searchTitle: (state) => search?.title(state) ?? "",
  showGone,
});
let shown = null; // name of the view
let opened = null; // the moment that was opened from the results

async function show(state, { isBack }) {
  const isClip = Boolean(state.moment ?? state.clip);
  const name = isClip ? "clip" : search && (state.query || state.like) ? "found" : "start";
  const before = shown;
  if (before) showMessage("");
  showView(name);
  if (name !== "clip") clip.close();
  uploads.showQueue(state.clip);
  byId("query").value = state.query;
  if (name === "clip") {
    if (state.moment) opened = state.moment;
    if (clip.show(state) && before) focusTitle("clip");
  } else if (name === "found") {
    const done = search.show(state);
    if (before && before !== "found") focusCardOr("found", isBack);
    await done;
  } else {
    if (before && before !== "start") focusCardOr("start", isBack);
    await start.show();
  }
}

function showView(name) {
  shown = name;
  for (const each of Object.keys(TITLES)) byId(each).hidden = each !== name;
}

// Back returns to the card that was opened.
function focusCardOr(view, isBack) {
  const card = isBack && opened && document.querySelector(`#${view} .open[data-moment="${CSS.escape(opened)}"]`);
  if (card) card.focus();
  else if (shown !== "found" || document.activeElement !== byId("query")) focusTitle(view);
}

function focusTitle(view) {
  byId(TITLES[view]).focus({ preventScroll: true });
  if (view === "clip") scrollTo(0, 0);
}

function showGone(title, text) {
  showMessage(""); // of what else failed: one message at a time
  byId("gone-title").textContent = title;
  byId("gone-text").textContent = text;
  document.title = `${title} · ctsan`;
  showView("gone");
  byId("gone-title").focus();
}

function openFiles(files) {
  const { bytes } = status.limits;
  const clips = files.length === 1 ? files : files.filter(mayBeClip);
  const small = clips.filter(({ size }) => !bytes || size <= bytes);
  if (small.length) {
    const [first] = uploads.add(small);
    go({ clip: first.key });
    announce(`${first.name} is being read.`);
  }
  const skipped = [];
  const others = files.filter((file) => !clips.includes(file));
  if (others.length) skipped.push(`Skipped ${count(others.length, "file that is", "files that are")} no video or picture: ${names(others)}.`);
  const large = clips.filter((file) => !small.includes(file));
  if (large.length) {
    const which = large.length === 1 ? `“${large[0].name}” is` : `${names(large)} are`;
    skipped.push(`${which} larger than ${Math.round(bytes / 2 ** 20)} MB. Cut the video, or reduce its resolution.`);
  }
  if (skipped.length) showMessage(skipped.join(" "), { isError: !small.length });
}

function names(files) {
  const shownNames = files.slice(0, 3).map(({ name }) => name).join(", ");
  return files.length > 3 ? `${shownNames} and ${files.length - 3} more` : shownNames;
}

byId("file").addEventListener("change", (event) => {
  const files = [...event.target.files];
  event.target.value = "";
  if (files.length) openFiles(files);
});
byId("message-close").addEventListener("click", () => showMessage(""));
byId("back").dataset.back = "";
uploads.addEventListener("change", () => uploads.showQueue(readAddress().clip));

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
  if (files.length) openFiles(files);
});
listenToKeys(clip);
onAddress(show);
show(readAddress(), { isBack: false });
document.documentElement.dataset.ready = "true";
