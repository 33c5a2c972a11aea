/* Points over time: what a series is worth at a moment, and which stretches of it are known. */

/**
 * A series is {points: [[unix s, value | null], …] oldest first, hold: s, kind: 'step' | 'line'}; a point speaks for `hold`
 * seconds at most: after that nothing is known until the next one.
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
  return point && at - point[0] <= hold && point[1] !== null ? point[1] : Number.NaN;
}

/** Stretches of neighbouring known points, each [[x, y], …]; the last point of a step lasts until the next or its hold. */
export function stretches({ points, hold, kind }, from, to) {
  const found = [];
  let open = null;
  points.forEach(([x, y], place) => {
    // A line goes on to the first point beyond the end, which the picture cuts off.
    if (y === null || (x > to && !(kind === 'line' && open && points[place - 1][0] <= to))) {
      open = null;
      return;
    }
    const next = points[place + 1]?.[0] ?? Infinity;
    if (kind === 'step' && Math.min(next, x + hold) < from) return;
    if (!open) found.push((open = []));
    open.push([x, y]);
    const ends = next - x > hold;
    if (kind === 'step') {
      const until = Math.min(next, x + hold, to);
      open.push([until, y]);
    }
    if (ends) open = null;
  });
  return found;
}

/** The highest known value within [from, to]; `least` where none is higher. */
export function highest(series, from, to, least) {
  let most = least;
  for (const { points } of series) for (const [x, y] of points) if (y !== null && x >= from && x <= to && y > most) most = y;
  return most;
}

const TOPS = [1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64, 80, 100];

/** The next round number from which a scale reads well. */
export function roundTop(value) {
  if (value <= 100) return TOPS.find((top) => value <= top);
  const size = 10 ** Math.floor(Math.log10(value));
  return Math.ceil(value / size) * size;
}
