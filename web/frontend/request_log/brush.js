/* Brushing the strip: drag over a time range to filter by it. */

import { closest, required } from '../shell/element.js';

/**
 * Return the range between two shares (0..1) of the strip, unix seconds; null for a click.
 * @param {number} begin
 * @param {number} end
 * @param {number} one
 * @param {number} other
 */
export function brushed(begin, end, one, other) {
  const [from, to] = [Math.min(one, other), Math.max(one, other)].map((share) => Math.min(1, Math.max(0, share)));
  if (to - from < 0.005) return null;
  /** @param {number} share */
  const at = (share) => Math.round((begin + share * (end - begin)) / 1000);
  return at(to) > at(from) ? { since: at(from), until: at(to) } : null;
}

/**
 * Format a moment for the filter's fields: 2026-11-20 03:13:07.
 * @param {number} seconds
 */
export const fieldTime = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace('T', ' ');

/**
 * @param {HTMLElement} strip
 * @param {HTMLFormElement} form
 */
export function startBrush(strip, form) {
  /** @type {{ picture: SVGElement, mark: SVGElement, at: number } | null} */
  let from = null;
  /**
   * @param {PointerEvent} event
   * @param {SVGElement} picture
   */
  const shareAt = (event, picture) => {
    const { left, width } = picture.getBoundingClientRect();
    return (event.clientX - left) / width;
  };
  strip.addEventListener('pointerdown', (event) => {
    const picture = closest(event, '.decision-strip-picture', SVGElement);
    if (!picture || event.button !== 0) return;
    const mark = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    mark.setAttribute('class', 'strip-brush');
    mark.setAttribute('height', '100%');
    picture.append(mark);
    from = { picture, mark, at: shareAt(event, picture) };
    picture.setPointerCapture(event.pointerId);
  });
  strip.addEventListener('pointermove', (event) => {
    if (!from) return;
    const to = shareAt(event, from.picture);
    from.mark.setAttribute('x', `${100 * Math.max(0, Math.min(from.at, to))}%`);
    from.mark.setAttribute('width', `${100 * Math.abs(to - from.at)}%`);
  });
  strip.addEventListener('pointerup', (event) => {
    if (!from) return;
    const range = brushed(
      Number(strip.dataset.begin),
      Number(strip.dataset.end),
      from.at,
      shareAt(event, from.picture),
    );
    from.mark.remove();
    from = null;
    if (!range) return;
    required(form, '[name=since]', HTMLInputElement).value = fieldTime(range.since);
    required(form, '[name=until]', HTMLInputElement).value = fieldTime(range.until);
    form.requestSubmit();
  });
  strip.addEventListener('pointercancel', () => {
    from?.mark.remove();
    from = null;
  });
}
