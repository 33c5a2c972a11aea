/* How the height of the panel is shared out: rows first, then the lines, then the strips. CSS pixels. */

const LANE = 27;
const LINE_FRAME = 13;
const AXIS = 19;
const HOUR_FRAME = 13;
const BOTTOM = 8;
const MIN = { pitch: 11, strip: 12, gap: 4, line: 40, hour: 16 };
const MAX = { strip: 24, gap: 8, line: 168, hour: 20 };

/** Rows grow to 18 px in a large fleet and further in a small one, where the height would else lie idle. */
const maxPitch = (rows) => (rows > 24 ? 18 : rows > 12 ? 24 : 32);

/** Rows of the list that the heat becomes on a narrow page. */
const NARROW_PITCH = 36;

/**
 * Share `height` between `rows` rows in `pools` pools: {pitch, strip, gap, line, hour, total, overlay, narrow};
 * on a narrow page rows have a fixed height and the page scrolls.
 */
export function panelLayout(height, rows, pools, narrow = false) {
  const sizes = { ...MIN, pitch: narrow ? NARROW_PITCH : MIN.pitch };
  const total = () => LANE + pools * (sizes.strip + 2 * sizes.gap) + rows * sizes.pitch
    + 2 * (sizes.line + LINE_FRAME) + AXIS + sizes.hour + HOUR_FRAME + BOTTOM;
  const grow = (name, count, most) => {
    const by = Math.floor((height - total()) / count);
    if (by > 0) sizes[name] = Math.min(most, sizes[name] + by);
  };
  if (rows && !narrow) grow('pitch', rows, 18);
  grow('line', 2, 84);
  if (pools) grow('strip', pools, 18);
  if (rows && !narrow) grow('pitch', rows, maxPitch(rows));
  if (pools) grow('strip', pools, MAX.strip);
  if (pools) grow('gap', 2 * pools, MAX.gap);
  grow('hour', 1, MAX.hour);
  grow('line', 2, MAX.line);
  if (rows && !narrow) grow('pitch', rows, 40);
  grow('line', 2, Infinity);
  const overlay = total() - LANE - AXIS - sizes.hour - HOUR_FRAME - BOTTOM;
  return { ...sizes, total: total(), overlay, narrow };
}

/** Width of the names' column for the longest names of engines and pools, CSS pixels; longer ones end in an ellipsis. */
export function labelWidth(engineNames, poolNames) {
  const longest = (names) => names.reduce((most, name) => Math.max(most, name.length), 0);
  return Math.round(Math.min(152, Math.max(88, 28 + 6.8 * longest(engineNames), 14 + 7.2 * longest(poolNames))));
}

/** Top of a row below the lane: the pools before it, its own strip, the rows above it. */
export function rowTop(layout, plan, pool, place) {
  let top = 0;
  for (const group of plan) {
    top += layout.strip + 2 * layout.gap;
    if (group.pool === pool) return top + place * layout.pitch;
    top += group.rows.length * layout.pitch;
  }
  return top;
}
