/* The colour tokens for canvas code, read once per theme change. */

const HEAT_STEPS = 9;
const TABLE = 256;

/**
 * @typedef {object} Palette
 * @property {(name: string) => string} colour
 * @property {Uint8Array} heat 256 RGB triples from low to high
 */

/** @type {Palette | null} */
let current = null;
/** @type {Set<() => void>} */
const listeners = new Set();

/** The palette of the active theme: colour(name) and `heat`, 256 RGB triples from low to high. */
export function palette() {
  current ??= readPalette();
  return current;
}

/**
 * Call `listener` after each change of theme, contrast or forced colours.
 * @param {() => void} listener
 */
export function onPaletteChange(listener) {
  listeners.add(listener);
}

/** Read the tokens again and notify all listeners. */
export function paletteChanged() {
  current = null;
  for (const listener of listeners) listener();
}

/** @returns {Palette} */
function readPalette() {
  const style = getComputedStyle(document.documentElement);
  /** @type {Map<string, string>} */
  const names = new Map();
  /** @param {string} name */
  const colour = (name) => {
    const known = names.get(name) ?? style.getPropertyValue(name).trim();
    names.set(name, known);
    return known;
  };
  const stops = Array.from({ length: HEAT_STEPS }, (_, step) => rgb(colour(`--heat-${step}`)));
  return { colour, heat: heatTable(stops) };
}

/**
 * [red, green, blue] of a #rrggbb colour.
 * @param {string} hex
 */
export function rgb(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/**
 * Interpolate colour stops to TABLE entries, as one Uint8Array of RGB triples.
 * @param {number[][]} stops
 */
export function heatTable(stops) {
  const table = new Uint8Array(TABLE * 3);
  for (let entry = 0; entry < TABLE; entry += 1) {
    const position = (entry / (TABLE - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(position));
    for (let channel = 0; channel < 3; channel += 1) {
      const from = stops[low][channel];
      table[entry * 3 + channel] = Math.round(from + (stops[low + 1][channel] - from) * (position - low));
    }
  }
  return table;
}
