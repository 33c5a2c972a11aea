/* Series of points: the value at a moment, and the stretches of known values. */

/** @typedef {[at: number, value: number | null][]} Points oldest first, unix seconds */

/**
 * @typedef {object} Series
 * @property {Points} points
 * @property {number} hold seconds for which a point is valid; later values are unknown until the next point
 * @property {string} kind 'step' or 'line'
 */

/**
 * Return the value of a series at a moment, NaN for unknown.
 * @param {{ points: Points, hold: number }} series
 * @param {number} at
 */
export function valueAt({ points, hold }, at) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= at) low = middle + 1;
    else high = middle;
  }
  const point = points[low - 1];
  return point && at - point[0] <= hold ? (point[1] ?? Number.NaN) : Number.NaN;
}

/**
 * Return the stretches of adjacent known points; the last point of a step lasts until the next or its hold.
 * @param {Series} series
 * @param {number} from
 * @param {number} to
 */
export function stretches({ points, hold, kind }, from, to) {
  /** @type {[x: number, y: number][][]} */
  const pieces = [];
  /** @type {[x: number, y: number][] | null} */
  let open = null;
  for (const [index, [x, y]] of points.entries()) {
    // A line continues to the first point beyond the end; the canvas clips it.
    if (y === null || (x > to && !(kind === 'line' && open && points[index - 1][0] <= to))) {
      open = null;
      continue;
    }
    const next = points[index + 1]?.[0] ?? Infinity;
    if (kind === 'step' && Math.min(next, x + hold) < from) continue;
    if (!open) {
      open = [];
      pieces.push(open);
    }
    open.push([x, y]);
    const ends = next - x > hold;
    if (kind === 'step') {
      const until = Math.min(next, x + hold, to);
      open.push([until, y]);
    }
    if (ends) open = null;
  }
  return pieces;
}

/**
 * Return the highest known value within [from, to], at least `least`.
 * @param {{ points: Points }[]} series
 * @param {number} from
 * @param {number} to
 * @param {number} least
 */
export function highest(series, from, to, least) {
  let most = least;
  for (const { points } of series)
    for (const [x, y] of points) if (y !== null && x >= from && x <= to && y > most) most = y;
  return most;
}

const TOPS = [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100];

/**
 * Return the next round number for the top of a scale.
 * @param {number} value
 */
export function roundTop(value) {
  const top = TOPS.find((limit) => value <= limit);
  if (top !== undefined) return top;
  const size = 10 ** Math.floor(Math.log10(value));
  return Math.ceil(value / size) * size;
}
