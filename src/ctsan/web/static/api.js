// Requests to the JSON API. Failures are thrown as errors with a message for people.

class ApiError extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const UNREACHABLE = new ApiError("away", "The server does not answer. Check that “ctsan serve” is still running.");

export async function ask(path, { method = "GET", body, signal } = {}) {
  for (let retries = 5; ; retries -= 1) {
    let response;
    try {
      response = await fetch(path, {
        method,
        signal,
        headers: body === undefined ? {} : { "Content-Type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      throw error.name === "AbortError" ? error : UNREACHABLE;
    }
    if (response.status === 429 && retries > 0) {
      await wait(1000 * (Number(response.headers.get("Retry-After")) || 2), signal);
      continue;
    }
    if (response.status === 204) return null;
    const value = await response.json().catch(() => ({}));
    signal?.throwIfAborted(); // it may have been aborted while the answer was read
    if (response.ok) return value;
    throw errorOf(value, response.status);
  }
}

export async function upload(file, { onProgress, signal }) {
  for (let retries = 20; ; retries -= 1) {
    try {
      return await send(file, { onProgress, signal });
    } catch (error) {
      if (error.code !== "busy" || retries === 0) throw error;
      await wait(2000, signal);
    }
  }
}

// XMLHttpRequest, because fetch does not report the progress of an upload.
function send(file, { onProgress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "/api/clips");
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.responseType = "json";
    request.upload.onprogress = (event) => onProgress(event.total ? event.loaded / event.total : 0);
    request.onload = () =>
      request.status === 201 ? resolve(request.response) : reject(errorOf(request.response ?? {}, request.status));
    request.onerror = () => reject(UNREACHABLE);
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

function errorOf(value, status) {
  const { code = "http", message = `The server answered ${status}.` } = value?.error ?? {};
  return new ApiError(code, message);
}
