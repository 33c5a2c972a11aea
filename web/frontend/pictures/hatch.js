/* Diagonal hatch for time in which an engine did not serve; it stays in place while the data moves under it. */

const TILE_PX = 6;
const patterns = new Map();

/** A repeating pattern of lines in `line` on `ground`, for a canvas with `ratio` device pixels per CSS pixel. */
export function hatchPattern(context, ground, line, ratio) {
  const key = `${ground} ${line} ${ratio}`;
  if (!patterns.has(key)) patterns.set(key, makePattern(context, ground, line, ratio));
  return patterns.get(key);
}

function makePattern(context, ground, line, ratio) {
  const size = Math.round(TILE_PX * ratio);
  const tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const pen = tile.getContext('2d');
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
  return context.createPattern(tile, 'repeat');
}
