// The caption word by word, the concept words, and the traces that raised them.

import { ask } from "./api.js";
import { HeatMap, shareOf } from "./heat.js";
import { at, element, percent, say, showProblem, times } from "./page.js";

export class Describing {
  #heat = new HeatMap(at("heat"));
  #traces = null;
  #description = null;
  #chips = new Map(); // by word

  constructor(player) {
    player.addEventListener("frame", () => this.#heat.draw(player.time));
    at("trace").addEventListener("input", () => this.#showTrace(Number(at("trace").value) - 1));
    at("traces-off").addEventListener("click", () => this.#hide());
  }

  clear() {
    this.#traces = this.#description = null;
    this.#heat.load(null);
    at("description").hidden = at("traces").hidden = true;
  }

  async show(clip, signal) {
    const description = await ask(`/api/clips/${clip}/description`, { signal });
    this.#description = description;
    this.#chips.clear();
    const hasAttention = description.attended.length > 0;
    at("caption").replaceChildren(...description.words.flatMap((word) => [this.#word(word, hasAttention), " "]));
    at("caption").title = `score: what the sentences were ordered by; ${description.score.toFixed(2)} here`;
    at("caption-hint").hidden = !hasAttention;
    at("caption-hint").textContent = this.#hint();
    at("concepts").replaceChildren(...description.concepts.map((concept) => this.#chip(concept)));
    this.#confidences();
    at("description").hidden = false;
    say(`It says: ${description.caption}`);
    if (!description.run) return description;
    ask(`/api/clips/${clip}/traces`, { signal })
      .then((traces) => this.#take(traces))
      .catch(showProblem);
    return description;
  }

  #take(traces) {
    this.#traces = traces;
    this.#heat.load(traces);
    const count = traces.attention[0].length;
    at("trace").max = count;
    at("grid").style.setProperty("--columns", traces.columns.length - 1);
    at("grid").replaceChildren(...Array.from({ length: count }, () => element("i")));
    at("traces").hidden = false;
    this.#hide();
  }

  // Whose attention it is: models that say a sentence together have none in common.
  #attending() {
    const { run, said_by } = this.#description;
    return `the model “${run}”${said_by > 1 ? `, one of ${said_by} that said this sentence,` : ""}`;
  }

  #hint() {
    return "Point at a word to see which concept words it owes most to, and which were attended to.";
  }

  // x2.2: the word is 2.2 times as likely as without that concept word.
  #owed({ word, owes, effect }) {
    if (effect === null) return "";
    const most = owes.map((concept) => `${concept.word} ${times(concept.effect)}`).join(", ");
    const owed = most ? `most to ${most}` : "less than x1.1 to each concept word";
    return `“${word}” owes ${owed}; to all ${times(effect)} (times as likely as without). `;
  }

  #word(said, hasAttention) {
    const { word, attention } = said;
    if (!hasAttention) return element("span", {}, word);
    const strongest = this.#description.attended
      .map((concept, place) => [concept, attention[place]])
      .sort((one, other) => other[1] - one[1]);
    const told = strongest
      .slice(0, 3)
      .filter(([, weight]) => Math.round(100 * weight) > 0)
      .map(([concept, weight]) => `${concept} ${percent(weight)}`)
      .join(", ");
    const button = element("button", { type: "button", className: "word" }, word);
    const owed = this.#owed(said);
    const attended = `${this.#attending()} attended to ${told || "nothing"}.`;
    button.setAttribute("aria-label", `${word}: ${owed}${attended}`);
    const enter = () => {
      at("concepts").classList.add("attended");
      const weights = new Map(strongest);
      for (const concept of this.#chips.keys()) {
        const weight = weights.get(concept) ?? 0;
        this.#fillChip(concept, weight / (strongest[0][1] || 1), weight);
      }
      at("caption-hint").textContent = `${owed}For “${word}” ${attended}`;
    };
    const leave = () => {
      at("concepts").classList.remove("attended");
      at("caption-hint").textContent = this.#hint();
      this.#confidences();
    };
    button.addEventListener("pointerenter", enter);
    button.addEventListener("focus", enter);
    button.addEventListener("pointerleave", leave);
    button.addEventListener("blur", leave);
    return button;
  }

  #chip({ word }) {
    const number = element("small");
    const chip = element("button", { type: "button", className: "chip" }, word, number);
    chip.setAttribute("aria-pressed", "false");
    chip.addEventListener("click", () => {
      if (chip.getAttribute("aria-pressed") === "true") this.#hide();
      else this.#showConcept(word);
    });
    this.#chips.set(word, { chip, number });
    return chip;
  }

  #confidences() {
    for (const { word, confidence } of this.#description.concepts) this.#fillChip(word, confidence, confidence);
  }

  #fillChip(word, fill, share) {
    const found = this.#chips.get(word);
    if (!found) return;
    found.chip.style.setProperty("--fill", fill.toFixed(3));
    found.number.textContent = Math.round(100 * share) > 0 ? percent(share) : "";
  }

  #showConcept(word) {
    const found = this.#traces?.concepts.find((concept) => concept.word === word);
    if (!found) return;
    const weights = shareOf(found.shares);
    if (!weights) {
      const raised = found.shares.some((share) => share > 0);
      const why = raised ? `The traces together lower the score of “${word}”` : `No trace raises “${word}”`;
      const probe = found.probe_confidence === null ? "" : "; the probe names it";
      this.#light(null, `${why}${probe}`, null);
      say(at("trace-name").value);
      return;
    }
    const order = weights.map((_, trace) => trace).sort((one, other) => weights[other] - weights[one]);
    const own = found.probe_confidence === null ? "" : `; by the probe alone ${percent(found.probe_confidence)}`;
    this.#light(weights, `“${word}”, most by trace ${order[0] + 1}${own}`, word);
    at("trace").value = order[0] + 1;
  }

  // A trace is shown with the word that it raises most, of those that the traces together raise.
  #showTrace(number) {
    const best = this.#traces.concepts
      .filter(({ shares }) => shareOf(shares) && shares[number] > 0)
      .sort((one, other) => other.shares[number] - one.shares[number])[0];
    const name = `Trace ${number + 1} of ${this.#traces.attention[0].length}`;
    if (best) {
      const weights = this.#traces.attention[0].map((_, trace) => Number(trace === number));
      this.#light(weights, `${name}, raises “${best.word}” by ${best.shares[number].toFixed(2)}`, null);
    } else this.#light(null, `${name}, raises no word that the traces together raise`, null);
  }

  #hide() {
    this.#light(null, "Pick a word, or slide through the traces", null);
  }

  #light(weights, name, word) {
    this.#heat.show(weights);
    at("trace-name").value = name;
    at("trace").setAttribute("aria-valuetext", name);
    at("traces-off").disabled = weights === null;
    const most = Math.max(...(weights ?? [1]));
    [...at("grid").children].forEach((cell, trace) => {
      cell.style.setProperty("--share", weights ? (weights[trace] / most).toFixed(3) : 0);
    });
    for (const [each, { chip }] of this.#chips) chip.setAttribute("aria-pressed", String(each === word));
    if (word) say(`Showing where “${word}” was seen.`);
  }
}
