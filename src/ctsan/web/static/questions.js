// Fill in the blank and multiple choice, answered while the user types.

import { ask } from "./api.js";
import { afterTyping, announce, byId, element, percent } from "./page.js";

const BLANK = /_{2,}|<blank>/;
const FEWEST = 2; // sentences to choose from
const MOST = 5;

export class Questions {
  #clip = null;
  #tasks;
  #chooseLater;

  constructor(tasks) {
    this.#tasks = tasks;
    const fillLater = afterTyping(250, (signal) => this.#fill(signal));
    byId("blank").addEventListener("input", fillLater);
    byId("blank-add").addEventListener("click", () => {
      const input = byId("blank");
      const [start, end] = placeOfBlank(input);
      const before = /[^\s("“‘]$/.test(input.value.slice(0, start)) ? " " : "";
      const after = /^[^\s.,;:!?)"”’]/.test(input.value.slice(end)) ? " " : "";
      input.setRangeText(`${before}____${after}`, start, end, "end");
      input.focus();
      fillLater();
    });
    this.#chooseLater = afterTyping(450, (signal) => this.#choose(signal));
    for (const form of ["fill", "choose"]) byId(form).addEventListener("submit", (event) => event.preventDefault());
    while (byId("choices").children.length < FEWEST) this.#addChoice();
  }

  #addChoice() {
    const name = `Sentence ${byId("choices").children.length + 1}`;
    const input = element("input", { type: "text", autocomplete: "off", maxLength: 500, placeholder: name, ariaLabel: name });
    input.addEventListener("input", () => {
      const isLast = input === byId("choices").lastElementChild.querySelector("input");
      if (isLast && input.value.trim() && byId("choices").children.length < MOST) this.#addChoice();
      this.#chooseLater();
    });
    byId("choices").append(
      element("li", {}, input, element("div", { className: "bar" }, element("i")), element("span", { className: "number" })),
    );
  }

  clear() {
    this.#clip = null;
    byId("fill").hidden = byId("choose").hidden = true;
    byId("blank").value = "";
    this.#showFilling(null);
    for (const row of [...byId("choices").children].slice(FEWEST)) row.remove();
    for (const row of byId("choices").children) row.querySelector("input").value = "";
    this.#showScores([]);
  }

  // Prefill the forms with the caption, one of its words replaced by a blank.
  show(clip, description) {
    this.#clip = clip;
    byId("fill").hidden = !this.#tasks.includes("fill");
    byId("choose").hidden = !this.#tasks.includes("choose");
    if (!description) return;
    const words = description.caption.split(" ");
    const concepts = description.concepts.map((concept) => concept.word);
    const blank = words.findLastIndex((word) => concepts.includes(word));
    words[blank < 0 ? words.length - 1 : blank] = "____";
    byId("blank").value = words.join(" ");
    byId("blank").dispatchEvent(new Event("input"));
    byId("choices").querySelector("input").value = description.caption;
  }

  async #fill(signal) {
    const sentence = byId("blank").value.trim();
    if (!this.#clip || byId("fill").hidden) return;
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
    byId("blank-hint").textContent = hint;
    byId("filled").hidden = !answer;
    byId("fillings").replaceChildren();
    if (!answer) return;
    const parts = byId("blank").value.split(new RegExp(BLANK, "g"));
    byId("filled").replaceChildren(
      ...parts.flatMap((part, place) => [part, ...(answer.blanks[place] ? [element("mark", {}, answer.blanks[place][0].word)] : [])]),
    );
    byId("fillings").append(
      ...answer.blanks.map((words, place) => {
        const list = element("ul", { className: "bars" }, ...words.map(({ word, probability }) => bar(word, probability)));
        list.setAttribute("aria-label", answer.blanks.length > 1 ? `Words for blank ${place + 1}` : "Words for the blank");
        return list;
      }),
    );
    if (byId("fill").contains(document.activeElement)) announce(`Filled: ${answer.filled}`);
  }

  async #choose(signal) {
    const given = [...byId("choices").querySelectorAll("input")]
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
      announce(`Best: ${sentences[answer.choice]}`);
    } catch (error) {
      if (error.name !== "AbortError") this.#showScores([], error.message);
    }
  }

  #showScores(scored, hint = "Write two sentences or more.") {
    byId("choose-hint").textContent = hint;
    const most = Math.max(...scored.map(({ score }) => score));
    const least = Math.min(...scored.map(({ score }) => score));
    [...byId("choices").children].forEach((row, place) => {
      const sentence = scored.find((candidate) => candidate.place === place);
      const isBest = sentence !== undefined && sentence.score === most;
      row.classList.toggle("scored", sentence !== undefined);
      row.classList.toggle("best", isBest);
      row.querySelector("i").style.setProperty("--fill", sentence ? 0.06 + 0.94 * ((sentence.score - least) / (most - least || 1)) : 0);
      row.querySelector(".number").textContent = sentence ? `${sentence.score.toFixed(2)}${isBest ? " best" : ""}` : "";
    });
  }
}

// The selection of a field; a caret within a word moves behind the word.
function placeOfBlank({ value, selectionStart, selectionEnd }) {
  const start = selectionStart ?? value.length;
  const end = selectionEnd ?? start;
  if (start !== end || !/[\w'-]$/.test(value.slice(0, start))) return [start, end];
  const rest = /^[\w'-]*/.exec(value.slice(start))[0].length;
  return [start + rest, start + rest];
}

function bar(word, share) {
  const fill = element("i");
  fill.style.setProperty("--fill", share.toFixed(4));
  return element("li", {}, element("span", {}, word), element("div", { className: "bar" }, fill), element("span", { className: "number" }, percent(share)));
}

function unknown(words, otherwise = "") {
  return words.length ? `Not in the vocabulary of the model: ${words.join(", ")}.` : otherwise;
}
