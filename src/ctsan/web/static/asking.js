// A sentence with a blank, filled as it is typed; and sentences to choose from.

import { ask } from "./api.js";
import { afterTyping, at, element, percent, say } from "./page.js";

const BLANK = /_{2,}|<blank>/;
const CHOICES = 5;

export class Asking {
  #clip = null;
  #tasks;

  constructor(tasks) {
    this.#tasks = tasks;
    const fillLater = afterTyping(250, (signal) => this.#fill(signal));
    at("blank").addEventListener("input", fillLater);
    at("blank-add").addEventListener("click", () => {
      const input = at("blank");
      const start = input.selectionStart ?? input.value.length;
      const end = input.selectionEnd ?? start;
      const before = /\S$/.test(input.value.slice(0, start)) ? " " : "";
      const after = /^[^\s.,;:!?]/.test(input.value.slice(end)) ? " " : "";
      input.setRangeText(`${before}____${after}`, start, end, "end");
      input.focus();
      fillLater();
    });
    const chooseLater = afterTyping(450, (signal) => this.#choose(signal));
    for (const form of ["fill", "choose"]) at(form).addEventListener("submit", (event) => event.preventDefault());
    at("choices").append(
      ...Array.from({ length: CHOICES }, (_, place) => {
        const input = element("input", { type: "text", autocomplete: "off", maxLength: 500 });
        input.setAttribute("aria-label", `Sentence ${place + 1}`);
        input.placeholder = `Sentence ${place + 1}`;
        input.addEventListener("input", chooseLater);
        return element("li", {}, input, element("div", { className: "bar" }, element("i")), element("span", { className: "number" }));
      }),
    );
  }

  clear() {
    this.#clip = null;
    at("fill").hidden = at("choose").hidden = true;
    at("blank").value = "";
    this.#showFilling(null);
    for (const row of at("choices").children) row.querySelector("input").value = "";
    this.#showScores([]);
  }

  // Begin with something: what the model says of the clip, with a hole in it.
  show(clip, description) {
    this.#clip = clip;
    at("fill").hidden = !this.#tasks.includes("fill");
    at("choose").hidden = !this.#tasks.includes("choose");
    if (!description) return;
    const words = description.caption.split(" ");
    const concepts = description.concepts.map((concept) => concept.word);
    const hole = words.findLastIndex((word) => concepts.includes(word));
    words[hole < 0 ? words.length - 1 : hole] = "____";
    at("blank").value = words.join(" ");
    at("blank").dispatchEvent(new Event("input"));
    at("choices").querySelector("input").value = description.caption;
  }

  async #fill(signal) {
    const sentence = at("blank").value.trim();
    if (!this.#clip || at("fill").hidden) return;
    if (!BLANK.test(sentence)) {
      this.#showFilling(null, "Write ___ for the word that is missing.");
      return;
    }
    try {
      const answer = await ask(`/api/clips/${this.#clip}/fill`, { method: "POST", body: { sentence }, signal });
      this.#showFilling(answer, unknown(answer.unknown));
    } catch (error) {
      if (error.name !== "AbortError") this.#showFilling(null, error.message);
    }
  }

  #showFilling(answer, hint = "Write ___ for the word that is missing.") {
    at("blank-hint").textContent = hint;
    at("filled").hidden = !answer;
    at("fillings").replaceChildren();
    if (!answer) return;
    const pieces = at("blank").value.split(new RegExp(BLANK, "g"));
    at("filled").replaceChildren(
      ...pieces.flatMap((piece, place) => [piece, ...(answer.blanks[place] ? [element("mark", {}, answer.blanks[place][0].word)] : [])]),
    );
    at("fillings").append(
      ...answer.blanks.map((words, place) => {
        const list = element("ul", { className: "bars" }, ...words.map(({ word, probability }) => bar(word, probability)));
        list.setAttribute("aria-label", answer.blanks.length > 1 ? `Words for blank ${place + 1}` : "Words for the blank");
        return list;
      }),
    );
    if (at("fill").contains(document.activeElement)) say(`Filled: ${answer.filled}`);
  }

  async #choose(signal) {
    const given = [...at("choices").querySelectorAll("input")]
      .map((input, place) => ({ place, sentence: input.value.trim() }))
      .filter(({ sentence }) => sentence);
    if (!this.#clip || given.length < 2) {
      this.#showScores([]);
      return;
    }
    try {
      const sentences = given.map(({ sentence }) => sentence);
      const answer = await ask(`/api/clips/${this.#clip}/choose`, { method: "POST", body: { sentences }, signal });
      this.#showScores(given.map(({ place }, number) => ({ place, score: answer.scores[number] })), unknown(answer.unknown, "The best one is marked."));
      say(`Best: ${sentences[answer.choice]}`);
    } catch (error) {
      if (error.name !== "AbortError") this.#showScores([], error.message);
    }
  }

  #showScores(scored, hint = "Write two sentences or more.") {
    at("choose-hint").textContent = hint;
    const most = Math.max(...scored.map(({ score }) => score));
    const least = Math.min(...scored.map(({ score }) => score));
    [...at("choices").children].forEach((row, place) => {
      const own = scored.find((each) => each.place === place);
      const isBest = own !== undefined && own.score === most;
      row.classList.toggle("scored", own !== undefined);
      row.classList.toggle("best", isBest);
      row.querySelector("i").style.setProperty("--fill", own ? 0.06 + 0.94 * ((own.score - least) / (most - least || 1)) : 0);
      row.querySelector(".number").textContent = own ? `${own.score.toFixed(2)}${isBest ? " best" : ""}` : "";
    });
  }
}

function bar(word, share) {
  const fill = element("i");
  fill.style.setProperty("--fill", share.toFixed(4));
  return element("li", {}, element("span", {}, word), element("div", { className: "bar" }, fill), element("span", { className: "number" }, percent(share)));
}

function unknown(words, otherwise = "") {
  return words.length ? `Not known to the model, and read as if they were any word: ${words.join(", ")}.` : otherwise;
}
