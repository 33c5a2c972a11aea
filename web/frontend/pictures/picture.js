/* A custom element with one canvas whose backing store matches the device pixels. */

import { redraw } from './redraw_loop.js';

const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const exact = entry.devicePixelContentBoxSize?.[0];
    const box = entry.contentBoxSize[0];
    const ratio = devicePixelRatio || 1;
    entry.target.resized(
      Math.round(exact ? exact.inlineSize : box.inlineSize * ratio),
      Math.round(exact ? exact.blockSize : box.blockSize * ratio),
      ratio,
    );
  }
});

/** Subclasses implement paint(); it draws in device pixels: this.context, this.width, this.height, this.ratio. */
export class Picture extends HTMLElement {
  connectedCallback() {
    if (this.canvas) return;
    this.canvas = document.createElement('canvas');
    this.canvas.setAttribute('aria-hidden', 'true');
    this.context = this.canvas.getContext('2d');
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    this.append(this.canvas);
    try {
      sizes.observe(this, { box: 'device-pixel-content-box' });
    } catch {
      // Safari knows only the content box; rounding it is at most half a pixel off.
      sizes.observe(this);
    }
  }

  disconnectedCallback() {
    sizes.unobserve(this);
  }

  /** Called by the observer; a picture that needs more than a new store overrides it. */
  resized(width, height, ratio) {
    if (width === this.width && height === this.height && ratio === this.ratio) return;
    this.width = this.canvas.width = width;
    this.height = this.canvas.height = height;
    this.ratio = ratio;
    this.invalidate();
  }

  invalidate() {
    redraw(this);
  }
}

/** Left edge of column `place` of `columns` on a picture `width` device pixels wide; whole pixels. */
export function columnEdge(place, columns, width) {
  return Math.round((place * width) / columns);
}
