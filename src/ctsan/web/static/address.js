// The address of every state of the page: /?q=a+dog&only=grass&moment=ID&tab=questions

const EMPTY = { query: "", like: null, only: [], no: [], pages: 1, moment: null, clip: null, shot: null, tab: null };

export function readAddress(url = location.href) {
  const given = new URL(url, location.href).searchParams;
  const number = (name, least) => {
    const value = Number.parseInt(given.get(name), 10);
    return value >= least ? value : null;
  };
  return {
    ...EMPTY,
    query: given.get("q")?.trim() ?? "",
    like: given.get("like"),
    only: given.getAll("only"),
    no: given.getAll("no"),
    pages: number("pages", 1) ?? 1,
    moment: given.get("moment"),
    clip: given.get("clip"),
    shot: number("shot", 1),
    tab: given.get("tab"),
  };
}

export function address(state) {
  const { query, like, only, no, pages, moment, clip, shot, tab } = { ...EMPTY, ...state };
  const given = new URLSearchParams();
  if (query) given.append("q", query);
  if (like) given.append("like", like);
  for (const word of only) given.append("only", word);
  for (const word of no) given.append("no", word);
  if (pages > 1) given.append("pages", pages);
  if (moment) given.append("moment", moment);
  if (clip) given.append("clip", clip);
  if (shot) given.append("shot", shot);
  if (tab) given.append("tab", tab);
  const text = given.toString();
  return text ? `/?${text}` : "/";
}

// The part that says what was searched for; null if nothing was.
export function searchOf({ query, like, only, no, pages }) {
  return query || like ? { query, like, only, no, pages } : null;
}

// Go to a state. `isSame` replaces the address, so that Back leaves both at once.
let render = () => {};

export function go(state, { isSame = false } = {}) {
  const url = address(state);
  if (url === address(readAddress())) isSame = true;
  if (isSame) history.replaceState(history.state, "", url);
  else history.pushState({ from: address(readAddress()) }, "", url);
  render(readAddress(), { isBack: false });
}

// Change the address alone.
export function rename(state) {
  history.replaceState(history.state, "", address(state));
}

// Go back if that leads to the state, so that the history does not grow in circles.
export function goBackTo(state) {
  if (history.state?.from === address(state)) history.back();
  else go(state);
}

export function onAddress(show) {
  render = show;
  addEventListener("popstate", () => show(readAddress(), { isBack: true }));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !isPlain || link.hasAttribute("download") || event.defaultPrevented) return;
    const url = new URL(link.href);
    if (url.origin !== location.origin || url.pathname !== "/" || url.hash) return;
    event.preventDefault();
    if (link.dataset.back !== undefined) goBackTo(readAddress(link.href));
    else go(readAddress(link.href));
  });
}
