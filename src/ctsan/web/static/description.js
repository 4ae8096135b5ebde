// The caption with its attention, the concept words, and the traces that raised them.

import { ask } from "./api.js";
import { HeatMap, traceWeights } from "./heat.js";
import { announce, byId, element, percent, showError, times } from "./page.js";

const SHOWN_CONCEPTS = 5;

export class DescriptionView {
  #heat = new HeatMap(byId("heat"));
  #traces = null;
  #description = null;
  #chips = new Map(); // by word

  constructor(player) {
    player.addEventListener("frame", () => this.#heat.draw(player.time - player.start));
    byId("trace").addEventListener("input", () => this.#showTrace(Number(byId("trace").value) - 1));
    byId("traces-off").addEventListener("click", () => this.hide());
  }

  clear() {
    this.#traces = this.#description = null;
    this.#heat.load(null);
    this.#chips.clear();
    byId("traces-off").disabled = true;
    byId("description").hidden = byId("traces").hidden = true;
  }

  // A caption that is known before the clip has been read.
  showCaption(caption) {
    byId("caption").textContent = caption;
    byId("caption-hint").textContent = this.#hint();
    byId("caption-hint").hidden = false;
    byId("concepts").replaceChildren();
    byId("description").classList.add("partial");
    byId("description").hidden = false;
  }

  async show(clip, signal) {
    const description = await ask(`/api/clips/${clip}/description`, { signal });
    this.#description = description;
    this.#chips.clear();
    const hasAttention = description.attended.length > 0;
    byId("caption").replaceChildren(...description.words.flatMap((word) => [this.#word(word, hasAttention), " "]));
    byId("caption").title = `score ${description.score.toFixed(2)}, by which the captions were ranked`;
    byId("caption-hint").hidden = !hasAttention;
    byId("caption-hint").textContent = this.#hint();
    const concepts = chosenConcepts(description);
    byId("concepts").replaceChildren(...concepts.map((concept) => this.#chip(concept)));
    byId("concepts-hint").hidden = !concepts.length || !description.run;
    this.#showConfidences();
    byId("description").classList.remove("partial");
    byId("description").hidden = false;
    announce(`It says: ${description.caption}`);
    if (!description.run) return description;
    ask(`/api/clips/${clip}/traces`, { signal })
      .then((traces) => this.#showTraces(traces))
      .catch(showError);
    return description;
  }

  #showTraces(traces) {
    this.#traces = traces;
    this.#heat.load(traces);
    const count = traces.attention[0].length;
    byId("trace").max = count;
    byId("grid").style.setProperty("--columns", traces.columns.length - 1);
    byId("grid").replaceChildren(...Array.from({ length: count }, () => element("i")));
    byId("traces").hidden = false;
    this.hide();
  }

  // The model whose attention is shown: an ensemble has no attention of its own.
  #attendingModel() {
    const { run, num_models } = this.#description;
    return `the model “${run}”${num_models > 1 ? `, one of ${num_models} that wrote this sentence,` : ""}`;
  }

  #hint() {
    return "Point at a word to see which concept words made it likelier, and which were attended to.";
  }

  // x2.2: the word is 2.2 times as likely as without that concept word.
  #effectText({ word, effects, effect }) {
    if (effect === null) return "";
    const largest = effects.map((concept) => `${concept.word} ${times(concept.effect)}`).join(", ");
    const text = largest ? `likelier by ${largest}` : "hardly likelier by any concept word (less than x1.1)";
    return `“${word}” is ${text}; by all together ${times(effect)} (times as likely as without). `;
  }

  #word(captionWord, hasAttention) {
    const { word, attention } = captionWord;
    if (!hasAttention) return element("span", {}, word);
    const strongest = this.#description.attended
      .map((concept, place) => [concept, attention[place]])
      .sort((one, other) => other[1] - one[1]);
    const strongestText = strongest
      .slice(0, 3)
      .filter(([, weight]) => Math.round(100 * weight) > 0)
      .map(([concept, weight]) => `${concept} ${percent(weight)}`)
      .join(", ");
    const button = element("button", { type: "button", className: "word" }, word);
    const effects = this.#effectText(captionWord);
    const attended = strongestText ? `${this.#attendingModel()} attended to ${strongestText}.` : "";
    button.setAttribute("aria-label", `${word}: ${effects}${attended}`);
    const enter = () => {
      byId("concepts").classList.add("attended");
      const weights = new Map(strongest);
      for (const concept of this.#chips.keys()) {
        const weight = weights.get(concept) ?? 0;
        this.#fillChip(concept, weight / (strongest[0][1] || 1), weight);
      }
      byId("caption-hint").textContent = attended ? `${effects}For “${word}” ${attended}` : effects.trim();
    };
    const leave = () => {
      byId("concepts").classList.remove("attended");
      byId("caption-hint").textContent = this.#hint();
      this.#showConfidences();
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
      if (chip.getAttribute("aria-pressed") === "true") this.hide();
      else this.#showConcept(word);
    });
    this.#chips.set(word, { chip, number });
    return chip;
  }

  #showConfidences() {
    for (const { word, confidence } of this.#description.concepts) this.#fillChip(word, confidence, confidence);
  }

  #fillChip(word, fill, share) {
    const entry = this.#chips.get(word);
    if (!entry) return;
    entry.chip.style.setProperty("--fill", fill.toFixed(3));
    entry.number.textContent = Math.round(100 * share) > 0 ? percent(share) : "";
  }

  #showConcept(word) {
    const traced = this.#traces?.concepts.find((concept) => concept.word === word);
    if (!traced) return;
    const weights = traceWeights(traced);
    if (!weights) {
      const raised = traced.shares.some((share) => share > 0);
      const why = raised ? `The traces together lower the score of “${word}”` : `No trace raises “${word}”`;
      const probe = traced.probe_confidence === null ? "" : "; the probe names it";
      this.#highlight(null, `${why}${probe}`, null);
      announce(byId("trace-name").value);
      return;
    }
    const order = weights.map((_, trace) => trace).sort((one, other) => weights[other] - weights[one]);
    const probe = traced.probe_confidence === null ? "" : `; by the probe alone ${percent(traced.probe_confidence)}`;
    this.#highlight(weights, `“${word}”, most by trace ${order[0] + 1}${probe}`, word);
    byId("trace").value = order[0] + 1;
  }

  // Name the word that the trace raises most, among those that the traces raise in sum.
  #showTrace(number) {
    const best = this.#traces.concepts
      .filter((traced) => traceWeights(traced) && traced.shares[number] > 0)
      .sort((one, other) => other.shares[number] - one.shares[number])[0];
    const name = `Trace ${number + 1} of ${this.#traces.attention[0].length}`;
    if (best) {
      const weights = this.#traces.attention[0].map((_, trace) => Number(trace === number));
      this.#highlight(weights, `${name}, raises “${best.word}” by ${best.shares[number].toPrecision(2)}`, null);
    } else this.#highlight(null, `${name}, raises no word that the traces together raise`, null);
  }

  // Whether there was something to hide.
  hide() {
    const isShown = !byId("traces-off").disabled;
    this.#highlight(null, "Pick a word, or slide through the traces", null);
    return isShown;
  }

  #highlight(weights, name, word) {
    this.#heat.show(weights);
    byId("trace-name").value = name;
    byId("trace").setAttribute("aria-valuetext", name);
    byId("traces-off").disabled = weights === null;
    const most = Math.max(...(weights ?? [1]));
    [...byId("grid").children].forEach((cell, trace) => {
      cell.style.setProperty("--share", weights ? (weights[trace] / most).toFixed(3) : 0);
    });
    for (const [concept, { chip }] of this.#chips) chip.setAttribute("aria-pressed", String(concept === word));
    if (word) announce(`Showing where “${word}” was seen.`);
  }
}

// The words that tell this clip apart, as the model ranks them, those of the caption first.
function chosenConcepts({ caption, concepts }) {
  const said = new Set(caption.split(" "));
  const order = [...concepts.filter(({ word }) => said.has(word)), ...concepts.filter(({ word }) => !said.has(word))];
  return order.slice(0, SHOWN_CONCEPTS);
}
