/* Diagonal hatch for time in which an engine did not serve; it stays in place while the data moves under it. */

import { penOf } from './picture.js';

const TILE_PX = 6;
/** @type {Map<string, CanvasPattern>} */
const patterns = new Map();

/**
 * A repeating pattern of lines in `line` on `ground`, for a canvas with `ratio` device pixels per CSS pixel.
 * @param {CanvasRenderingContext2D} context
 * @param {string} ground
 * @param {string} line
 * @param {number} ratio
 */
export function hatchPattern(context, ground, line, ratio) {
  const key = `${ground} ${line} ${ratio}`;
  const pattern = patterns.get(key) ?? makePattern(context, ground, line, ratio);
  patterns.set(key, pattern);
  return pattern;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} ground
 * @param {string} line
 * @param {number} ratio
 */
function makePattern(context, ground, line, ratio) {
  const size = Math.round(TILE_PX * ratio);
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const pen = penOf(tile);
  pen.fillStyle = ground;
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = line;
  pen.lineWidth = Math.max(1, ratio * 0.9);
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift - 1, size + 1);
    pen.lineTo(shift + size + 1, -1);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, 'repeat');
  if (!pattern) throw new Error('an empty tile makes no pattern');
  return pattern;
}
