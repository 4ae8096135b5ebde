// Draws the attention of traces as a smooth heat map over the video.

const WIDTH = 96;
const HEIGHT = 64;
const MIN_PEAK = 2; // as a multiple of uniform attention; weaker attention stays pale
const WARM = [255, 158, 44];

export class HeatMap {
  #canvas;
  #context;
  #image;
  #traces = null;
  #weights = null; // one per trace; null shows nothing
  #peak = MIN_PEAK; // strongest attention in the clip, as a multiple of uniform attention

  constructor(canvas) {
    this.#canvas = canvas;
    canvas.width = WIDTH;
    canvas.height = HEIGHT;
    this.#context = canvas.getContext("2d");
    this.#image = this.#context.createImageData(WIDTH, HEIGHT);
  }

  load(traces) {
    this.#traces = traces && {
      ...traces,
      down: bicubic(traces.rows, HEIGHT),
      across: bicubic(traces.columns, WIDTH),
    };
    this.show(null);
  }

  show(weights) {
    this.#weights = weights;
    this.#canvas.classList.toggle("on", weights !== null);
    if (!weights) return;
    const frames = this.#traces.times.map((_, frame) => this.#mixed(frame));
    this.#peak = Math.max(MIN_PEAK, ...frames.flat(2));
  }

  draw(time) {
    if (!this.#traces || !this.#weights) return;
    const { down, across } = this.#traces;
    const levels = this.#levels(time);
    const columns = across.map((weights) => levels.map((row) => dot(weights, row))); // (WIDTH, h)
    const data = this.#image.data;
    for (let y = 0, at = 0; y < HEIGHT; y += 1) {
      for (let x = 0; x < WIDTH; x += 1, at += 4) {
        const level = Math.min(1, Math.max(0, dot(down[y], columns[x])));
        const glow = level * level * (3 - 2 * level);
        data[at] = WARM[0] * glow;
        data[at + 1] = WARM[1] * glow;
        data[at + 2] = WARM[2] * glow;
        data[at + 3] = 255 * (0.36 + 0.24 * glow);
      }
    }
    this.#context.putImageData(this.#image, 0, 0);
  }

  // Linearly interpolated between sampled frames: 0 for uniform attention or less, 1 at the clip's peak.
  #levels(time) {
    const { times } = this.#traces;
    let after = times.findIndex((sampled) => sampled >= time);
    if (after < 0) after = times.length - 1;
    const before = Math.max(0, times[after] > time ? after - 1 : after);
    const span = times[after] - times[before];
    const share = span > 0 ? Math.min(1, Math.max(0, (time - times[before]) / span)) : 0;
    const end = this.#mixed(after);
    return this.#mixed(before).map((row, y) =>
      row.map((start, x) => Math.max(0, start + share * (end[y][x] - start) - 1) / (this.#peak - 1)),
    );
  }

  // Weighted attention of the traces in a frame, by row and column, as a multiple of uniform attention.
  #mixed(frame) {
    const traces = this.#traces.attention[frame];
    const cells = traces[0].length * traces[0][0].length;
    return traces[0].map((row, y) =>
      row.map((_, x) => cells * this.#weights.reduce((sum, weight, trace) => sum + weight * traces[trace][y][x], 0)),
    );
  }
}

// Weights of the traces for a concept word: by how much their share of its score exceeds the mean.
// Null if the traces lower the score in sum, or leave the word below the confidence of the probe alone.
export function traceWeights({ shares, confidence, probe_confidence }) {
  if (probe_confidence !== null && confidence <= probe_confidence) return null;
  const mean = shares.reduce((total, share) => total + share, 0) / shares.length;
  if (mean <= 0) return null;
  const raising = shares.map((share) => Math.max(0, share - mean));
  const sum = raising.reduce((total, share) => total + share, 0);
  return raising.map((share) => (sum > 0 ? share / sum : 1 / shares.length));
}

// Interpolation weights of the cells for each pixel: a Catmull-Rom spline through the cell centres.
function bicubic(borders, size) {
  const cells = borders.length - 1;
  return Array.from({ length: size }, (_, pixel) => {
    const at = (pixel + 0.5) / size;
    let cell = borders.findIndex((border) => border > at) - 1;
    if (cell < 0) cell = cells - 1;
    const place = cell + (at - borders[cell]) / (borders[cell + 1] - borders[cell]) - 0.5;
    const left = Math.floor(place);
    const weights = new Array(cells).fill(0);
    for (let neighbour = -1; neighbour < 3; neighbour += 1) {
      const distance = Math.abs(place - left - neighbour);
      const cubic =
        distance < 1
          ? 1.5 * distance ** 3 - 2.5 * distance ** 2 + 1
          : -0.5 * distance ** 3 + 2.5 * distance ** 2 - 4 * distance + 2;
      weights[Math.min(cells - 1, Math.max(0, left + neighbour))] += cubic;
    }
    return weights;
  });
}

function dot(one, other) {
  let sum = 0;
  for (let place = 0; place < one.length; place += 1) sum += one[place] * other[place];
  return sum;
}
