/* The tokens as canvas code needs them: read once per theme change. */

const HEAT_STEPS = 9;
const TABLE = 256;

let current = null;
const listeners = new Set();

/** The palette of the theme in force: colour(name) and `heat`, 256 RGB triples from low to high. */
export function palette() {
  current ??= readPalette();
  return current;
}

/** Call `listener` after each change of theme, contrast or forced colours. */
export function onPaletteChange(listener) {
  listeners.add(listener);
}

/** Read the tokens anew and tell everyone. */
export function paletteChanged() {
  current = null;
  for (const listener of listeners) listener();
}

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const names = new Map();
  const colour = (name) => {
    if (!names.has(name)) names.set(name, style.getPropertyValue(name).trim());
    return names.get(name);
  };
  const stops = Array.from({ length: HEAT_STEPS }, (_, step) => rgb(colour(`--heat-${step}`)));
  return { colour, heat: heatTable(stops) };
}

/** [red, green, blue] of a #rrggbb colour. */
export function rgb(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** Interpolate colour stops to TABLE entries, as one Uint8Array of RGB triples. */
export function heatTable(stops) {
  const table = new Uint8Array(TABLE * 3);
  for (let entry = 0; entry < TABLE; entry += 1) {
    const place = (entry / (TABLE - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    for (let channel = 0; channel < 3; channel += 1) {
      const from = stops[low][channel];
      table[entry * 3 + channel] = Math.round(from + (stops[low + 1][channel] - from) * (place - low));
    }
  }
  return table;
}
