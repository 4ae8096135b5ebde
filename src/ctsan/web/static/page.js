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

// Read out by screen readers. A message that is on the screen is read by itself.
export function announce(text) {
  byId("said").textContent = text;
}

// The one message on the screen; "" removes it. An error interrupts a screen reader, others wait.
export function showMessage(text, { isError = false } = {}) {
  const box = byId("message");
  box.hidden = !text;
  box.classList.toggle("wrong", isError);
  box.setAttribute("role", isError ? "alert" : "status");
  byId("message-text").textContent = text;
  if (text) announce("");
}

export function showError(error) {
  if (error.name !== "AbortError") showMessage(error.message, { isError: true });
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

export const prefersStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const percent = (share) => `${Math.round(100 * share)} %`;

export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

// Format an effect in nats: x2.2 means 2.2 times as likely.
export function times(effect) {
  const factor = Math.exp(effect);
  if (factor >= 10) return `x${Math.round(factor).toLocaleString("en")}`;
  return `x${factor < 0.1 ? Number(factor.toPrecision(2)) : factor.toFixed(1)}`;
}

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds || 0));
  const minutes = Math.floor(whole / 60);
  const rest = String(whole % 60).padStart(2, "0");
  return minutes < 60
    ? `${minutes}:${rest}`
    : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, "0")}:${rest}`;
}

export function spanText({ start, end }) {
  if (end <= start) return "picture";
  return clock(start) === clock(end) ? clock(start) : `${clock(start)} – ${clock(end)}`;
}
