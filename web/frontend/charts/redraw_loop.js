/* One requestAnimationFrame loop draws every picture of the page, and only those that changed. */

/** Who wants no motion sees data move in whole steps of this length; what they do themselves shows at once. */
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
 * What the last frames cost, milliseconds; a test holds the budget against it.
 * @type {number[]}
 */
export const frameTimes = [];
const KEPT_FRAMES = 64;

/**
 * Have `picture.paint()` called in the next frame; asking twice draws once.
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

/** The operator did something: what follows is drawn without waiting for the next step. */
function acted() {
  actedAt = performance.now();
  if (!timer) return;
  clearTimeout(timer);
  timer = undefined;
  requestAnimationFrame(drawAll);
}

for (const kind of ['keydown', 'pointerdown', 'pointermove', 'resize'])
  globalThis.addEventListener?.(kind, acted, { capture: true, passive: true });
