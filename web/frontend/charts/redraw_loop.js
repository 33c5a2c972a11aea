/* One requestAnimationFrame loop draws every picture of the page, and only those that changed. */

/** With reduced motion, data moves in steps of this length; user actions draw at once. */
const STEP_MS = 1000;

/** @type {Set<{ isConnected: boolean, paint: () => void }>} */
const dirty = new Set();
const reduced = globalThis.matchMedia?.('(prefers-reduced-motion: reduce)');
let scheduled = false;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let drawnAt = -STEP_MS;
let actedAt = -STEP_MS;

/**
 * Durations of the last frames, milliseconds; a test checks their budget.
 * @type {number[]}
 */
export const frameTimes = [];
const KEPT_FRAMES = 64;

/**
 * Call `picture.paint()` in the next frame, once for any number of calls.
 * @param {{ isConnected: boolean, paint: () => void }} picture
 */
export function redraw(picture) {
  dirty.add(picture);
  if (scheduled) return;
  scheduled = true;
  const wait =
    reduced?.matches && performance.now() - actedAt > STEP_MS / 4 ? STEP_MS - (performance.now() - drawnAt) : 0;
  if (wait > 0) timer = setTimeout(() => requestAnimationFrame(drawAll), wait);
  else requestAnimationFrame(drawAll);
}

function drawAll() {
  scheduled = false;
  timer = undefined;
  drawnAt = performance.now();
  const pictures = [...dirty];
  dirty.clear();
  for (const picture of pictures) if (picture.isConnected) picture.paint();
  frameTimes.push(performance.now() - drawnAt);
  if (frameTimes.length > KEPT_FRAMES) frameTimes.shift();
}

/** Draw the effects of a user action without waiting for the next step. */
function acted() {
  actedAt = performance.now();
  if (!timer) return;
  clearTimeout(timer);
  timer = undefined;
  requestAnimationFrame(drawAll);
}

for (const kind of ['keydown', 'pointerdown', 'pointermove', 'resize'])
  globalThis.addEventListener?.(kind, acted, { capture: true, passive: true });
