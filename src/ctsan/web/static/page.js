// Small helpers for the page.

export const at = (id) => document.getElementById(id);

// An element with properties and children: `element("li", { className: "best" }, "text", other)`.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// For those who listen instead of looking.
export function say(text) {
  at("said").textContent = text;
}

export function showError(text) {
  at("error-text").textContent = text;
  at("error").hidden = !text;
}

// What a person should know, and need not mend.
export function showNotice(text) {
  at("notice").textContent = text;
  at("notice").hidden = !text;
}

export function showProblem(error) {
  if (error.name !== "AbortError") showError(error.message);
}

// Calls after the typing has stopped; the call before is cancelled.
export function afterTyping(milliseconds, work) {
  let timer = null;
  let cancel = new AbortController();
  return () => {
    clearTimeout(timer);
    cancel.abort();
    cancel = new AbortController();
    const { signal } = cancel;
    timer = setTimeout(() => work(signal), milliseconds);
  };
}

export const percent = (share) => `${Math.round(100 * share)} %`;

// An effect in nats as people read it: x2.2 for 2.2 times as likely.
export function times(effect) {
  const factor = Math.exp(effect);
  if (factor >= 10) return `x${Math.round(factor).toLocaleString("en")}`;
  return `x${factor < 0.1 ? Number(factor.toPrecision(2)) : factor.toFixed(1)}`;
}
