// DOM helpers.

export const byId = (id) => document.getElementById(id);

// Create an element with properties and children: `element("li", { className: "best" }, "text", other)`.
export function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// Read out by screen readers.
export function announce(text) {
  byId("said").textContent = text;
}

export function showError(text) {
  byId("error-text").textContent = text;
  byId("error").hidden = !text;
}

// Information that needs no action.
export function showNotice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

export function showUnlessAborted(error) {
  if (error.name !== "AbortError") showError(error.message);
}

// Debounce: call `work` once typing has paused, and abort the previous call.
export function afterTyping(milliseconds, work) {
  let timer = null;
  let controller = new AbortController();
  return () => {
    clearTimeout(timer);
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    timer = setTimeout(() => work(signal), milliseconds);
  };
}

export const percent = (share) => `${Math.round(100 * share)} %`;

// Format an effect in nats: x2.2 means 2.2 times as likely.
export function times(effect) {
  const factor = Math.exp(effect);
  if (factor >= 10) return `x${Math.round(factor).toLocaleString("en")}`;
  return `x${factor < 0.1 ? Number(factor.toPrecision(2)) : factor.toFixed(1)}`;
}
