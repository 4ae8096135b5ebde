// Requests to the server this page came from. What goes wrong comes as an Error whose message is for people.

export class Problem extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const AWAY = new Problem("away", "The server does not answer. Check that “ctsan serve” is still running.");

export async function ask(path, { method = "GET", body, signal } = {}) {
  for (let patience = 5; ; patience -= 1) {
    let response;
    try {
      response = await fetch(path, {
        method,
        signal,
        headers: body === undefined ? {} : { "Content-Type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      throw error.name === "AbortError" ? error : AWAY;
    }
    if (response.status === 429 && patience > 0) {
      await wait(1000 * (Number(response.headers.get("Retry-After")) || 2), signal);
      continue;
    }
    if (response.status === 204) return null;
    const value = await response.json().catch(() => ({}));
    if (response.ok) return value;
    throw problemOf(value, response.status);
  }
}

export async function upload(file, { onProgress, signal }) {
  for (let patience = 20; ; patience -= 1) {
    try {
      return await send(file, { onProgress, signal });
    } catch (error) {
      if (error.code !== "busy" || patience === 0) throw error;
      await wait(2000, signal);
    }
  }
}

// fetch cannot tell how far an upload is; XMLHttpRequest can.
function send(file, { onProgress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/api/clips");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => onProgress(event.total ? event.loaded / event.total : 0);
    request.onload = () =>
      request.status === 201 ? resolve(request.response) : reject(problemOf(request.response ?? {}, request.status));
    request.onerror = () => reject(AWAY);
    request.onabort = () => reject(new DOMException("Cancelled", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

export function wait(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("Cancelled", "AbortError"));
    });
  });
}

function problemOf(value, status) {
  const { code = "http", message = `The server answered ${status}.` } = value?.error ?? {};
  return new Problem(code, message);
}
