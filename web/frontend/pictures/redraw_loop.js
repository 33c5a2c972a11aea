/* One requestAnimationFrame loop draws every picture of the page, and only those that changed. */

const dirty = new Set();
let scheduled = false;

/** Have `picture.paint()` called in the next frame; asking twice draws once. */
export function redraw(picture) {
  dirty.add(picture);
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(drawAll);
}

function drawAll() {
  scheduled = false;
  const pictures = [...dirty];
  dirty.clear();
  for (const picture of pictures) if (picture.isConnected) picture.paint();
}
