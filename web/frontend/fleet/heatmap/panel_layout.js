/* Layout of the panel height: rows first, then lines, then strips. CSS pixels. */

/** @import { RowGroup } from './row_plan.js' */

const LANE = 27;
const LINE_FRAME = 13;
const AXIS = 19;
const HOUR_FRAME = 13;
const BOTTOM = 8;
/** Rows of the queue below the lines, and the height of its heading. */
const QUEUE_ROWS = 4;
const QUEUE_HEAD = 30;
const QUEUE_HEAD_NARROW = 78;
const MIN = { pitch: 11, strip: 12, gap: 4, line: 46, queue: 34, hour: 16 };
const MAX = { strip: 24, gap: 8, line: 168, hour: 20 };

/**
 * Rows grow to 18 px in a large fleet, and further in a small one to use the height.
 * @param {number} rows
 */
const maxPitch = (rows) => (rows > 24 ? 18 : rows > 12 ? 24 : 32);

/** Row height of the list on a narrow page. */
const NARROW_PITCH = 36;

/**
 * Heights in CSS pixels.
 * @typedef {object} Sizes
 * @property {number} pitch a row of the heat
 * @property {number} strip a pool's strip of unbound requests
 * @property {number} gap
 * @property {number} line a line chart
 * @property {number} queue a row of the queue
 * @property {number} hour the strip below
 */

/**
 * @typedef {Sizes & { total: number, overlay: number, narrow: boolean, folded: boolean }} Layout
 */

/**
 * Share `height` between `rows` rows in `pools` pools: {pitch, strip, gap, line, queue, hour, total, overlay, narrow};
 * on a narrow page rows have a fixed height and the page scrolls. A folded queue has only its heading.
 * @param {number} height
 * @param {number} rows
 * @param {number} pools
 */
export function panelLayout(height, rows, pools, narrow = false, folded = false) {
  /** @type {Sizes} */
  const sizes = { ...MIN, pitch: narrow ? NARROW_PITCH : MIN.pitch };
  const queueRows = folded ? 0 : QUEUE_ROWS;
  const queueHead = narrow && !folded ? QUEUE_HEAD_NARROW : QUEUE_HEAD;
  const total = () =>
    LANE +
    pools * (sizes.strip + 2 * sizes.gap) +
    rows * sizes.pitch +
    2 * (sizes.line + LINE_FRAME) +
    queueHead +
    queueRows * (sizes.queue + LINE_FRAME) +
    AXIS +
    sizes.hour +
    HOUR_FRAME +
    BOTTOM;
  /**
   * @param {keyof Sizes} name
   * @param {number} count
   * @param {number} most
   */
  const grow = (name, count, most) => {
    const by = Math.floor((height - total()) / count);
    if (count && by > 0) sizes[name] = Math.min(most, sizes[name] + by);
  };
  if (rows && !narrow) grow('pitch', rows, 18);
  grow('line', 2, 64);
  grow('queue', queueRows, 56);
  grow('line', 2, 84);
  if (pools) grow('strip', pools, 18);
  if (rows && !narrow) grow('pitch', rows, maxPitch(rows));
  if (pools) grow('strip', pools, MAX.strip);
  if (pools) grow('gap', 2 * pools, MAX.gap);
  grow('hour', 1, MAX.hour);
  grow('queue', queueRows, 96);
  grow('line', 2, MAX.line);
  if (rows && !narrow) grow('pitch', rows, 40);
  grow('line', 2, Infinity);
  const overlay = total() - LANE - AXIS - sizes.hour - HOUR_FRAME - BOTTOM;
  return { ...sizes, total: total(), overlay, narrow, folded };
}

/**
 * Return the layout for an opened ('open'), a folded ('folded'), or an untouched ('') queue. An untouched queue
 * is folded only if the panel then fits its height; a narrow page scrolls anyway.
 * @param {number} height
 * @param {number} rows
 * @param {number} pools
 * @param {boolean} narrow
 * @param {string} queue
 */
export function fittingLayout(height, rows, pools, narrow, queue) {
  /** @param {boolean} folded */
  const layout = (folded) => panelLayout(height, rows, pools, narrow, folded);
  const wanted = layout(queue === 'folded');
  if (queue || narrow || wanted.total <= height) return wanted;
  const less = layout(true);
  return less.total <= height ? less : wanted;
}

/**
 * Return the width of the name column for the longest names of engines and pools, in CSS pixels.
 * A longer name ends in an ellipsis.
 * @param {string[]} engineNames
 * @param {string[]} poolNames
 */
export function labelWidth(engineNames, poolNames) {
  /**
   * @param {string[]} names
   */
  const longest = (names) => names.reduce((most, name) => Math.max(most, name.length), 0);
  return Math.round(Math.min(152, Math.max(88, 28 + 6.8 * longest(engineNames), 14 + 7.2 * longest(poolNames))));
}

/**
 * Return the top of a row below the lane: the pools before it, its strip, the rows above it.
 * @param {Layout} layout
 * @param {RowGroup[]} plan
 * @param {number} pool
 * @param {number} index
 */
export function rowTop(layout, plan, pool, index) {
  let top = 0;
  for (const group of plan) {
    top += layout.strip + 2 * layout.gap;
    if (group.pool === pool) return top + index * layout.pitch;
    top += group.rows.length * layout.pitch;
  }
  return top;
}
